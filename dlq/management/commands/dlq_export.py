"""Writes the message of a dead letter into files, byte for byte."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import letter_of
from dlq.errors import CannotUnseal
from dlq.repairing import STANDARD, message_file, write_file


class Command(BaseCommand):
    help = (
        "Write a letter's message into files, to look at it, or to repair it and send it with dlq_replay. "
        "They hold the message as it was, secrets included."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of the dead letter")
        parser.add_argument("--body", metavar="FILE", help='the raw bytes of the body; "-": stdout')
        parser.add_argument(
            "--message", metavar="FILE", help='headers, properties and content type, as JSON; "-": stdout'
        )

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = {name: options[name] for name in ("body", "message") if options[name]}
        if not wanted:
            raise CommandError("nothing to write: give --body, --message or both")
        if list(wanted.values()) == [STANDARD, STANDARD]:
            raise CommandError("only one of them can go to stdout")
        letter = letter_of(options["id"])
        try:
            record = letter.record()
        except CannotUnseal as exc:
            raise CommandError(str(exc)) from exc
        for name, path in wanted.items():
            content = record.payload.body if name == "body" else message_file(record)
            write_file(path, content)
            if path != STANDARD:
                self.stderr.write(f"{len(content)} bytes written to {path}")
