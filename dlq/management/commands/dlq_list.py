"""Lists dead letters, newest first."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dlq.cli import add_filters, as_json, brief, positive, selection_of
from dlq.states import State


class Command(BaseCommand):
    help = "List dead letters, newest first."
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--state", choices=[state.value for state in State])
        add_filters(parser)
        parser.add_argument("--limit", type=positive, default=50, help="at most so many (default: 50)")
        parser.add_argument("--json", action="store_true", help="print one JSON array")

    def handle(self, *args: Any, **options: Any) -> None:
        letters = [
            brief(letter) for letter in selection_of(options).letters().defer("sealed")[: options["limit"]]
        ]
        if options["json"]:
            self.stdout.write(as_json(letters))
            return
        for each in letters:
            self.stdout.write(
                f"{each['id']}  {each['state']:<10} {each['failed_at']}  {each['task']}  "
                f"{each['queue'] or '-'}  {each['reason']}  {each['error_class']}"
            )
        self.stderr.write(f"{len(letters)} letters")
