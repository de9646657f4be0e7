"""Shows one dead letter with its attempts and its redacted payload."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dlq.cli import as_json, full, full_text, letter_of


class Command(BaseCommand):
    help = "Show one dead letter: attempts, redacted payload, replays."
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of the dead letter")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        letter = letter_of(options["id"])
        self.stdout.write(as_json(full(letter)) if options["json"] else full_text(full(letter)))
