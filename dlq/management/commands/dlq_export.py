"""Writes letters into a file, or the message of one, byte for byte."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import add_filters, given_ids, letter_of, positive, selection_of
from dlq.errors import CannotUnseal
from dlq.lookup import letters_of
from dlq.models import DeadLetterQuerySet
from dlq.repairing import STANDARD, message_file, new_file, write_file
from dlq.states import State
from dlq.transfer.exporting import Form, exported
from dlq.transfer.lines import Contents

_PROGRESS_EVERY = 1000


class Command(BaseCommand):
    help = (
        "Write many letters into one file (--jsonl, --csv), or one letter's message into files (--body, "
        "--message), to look at it, or to repair it and send it with dlq_replay. --whole, --body and "
        "--message hold messages as they were, secrets included; --whole is what dlq_import reads."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="*", metavar="ID", help="ids of dead letters")
        one = parser.add_argument_group("the message of one letter")
        one.add_argument("--body", metavar="FILE", help='the raw bytes of the body; "-": stdout')
        one.add_argument(
            "--message", metavar="FILE", help='headers, properties and content type, as JSON; "-": stdout'
        )
        many = parser.add_argument_group("many letters, oldest first")
        many.add_argument("--jsonl", metavar="FILE", help='one JSON object a line; "-": stdout')
        many.add_argument("--csv", metavar="FILE", help='a table, without attempts; "-": stdout')
        contents = many.add_mutually_exclusive_group()
        contents.add_argument(
            "--payload", action="store_true", help="also arguments and headers, with secrets hidden"
        )
        contents.add_argument(
            "--whole",
            action="store_true",
            help="also messages as they were, secrets included: for dlq_import",
        )
        many.add_argument("--all", action="store_true", help="every letter; needed without ids and filters")
        many.add_argument("--state", choices=[state.value for state in State])
        add_filters(parser)
        many.add_argument("--limit", type=positive, help="at most so many, the oldest first")

    def handle(self, *args: Any, **options: Any) -> None:
        parts = {name: options[name] for name in ("body", "message") if options[name]}
        files = {form: options[form.value] for form in Form if options[form.value]}
        if len(files) > 1 or (files and parts):
            raise CommandError("give --jsonl, or --csv, or --body and --message: not several of them")
        if not files and not parts:
            raise CommandError("nothing to write: give --jsonl, --csv, --body or --message")
        if files:
            ((form, path),) = files.items()
            self._many(form, path, options)
        else:
            self._one(parts, options)

    def _one(self, parts: dict[str, str], options: dict[str, Any]) -> None:
        if list(parts.values()) == [STANDARD, STANDARD]:
            raise CommandError("only one of them can go to stdout")
        if len(options["ids"]) != 1:
            raise CommandError("--body and --message are of one letter: give its id")
        letter = letter_of(options["ids"][0])
        try:
            record = letter.record()
        except CannotUnseal as exc:
            raise CommandError(str(exc)) from exc
        for name, path in parts.items():
            content = record.payload.body if name == "body" else message_file(record)
            write_file(path, content)
            if path != STANDARD:
                self.stderr.write(f"{len(content)} bytes written to {path}")

    def _many(self, form: Form, path: str, options: dict[str, Any]) -> None:
        letters = self._letters(options)
        self.count = self.problems = 0
        try:
            text = exported(
                letters,
                form,
                contents=_contents(options),
                most=options["limit"],
                on_letter=self._note,
            )
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
        with new_file(path) as file:
            for piece in text:
                file.write(piece.encode())
        self.stderr.write(f"{self.count} letters written")
        if self.problems and options["whole"]:
            raise CommandError(
                f"{self.problems} of them without their message: it cannot be read with the keys"
            )

    def _letters(self, options: dict[str, Any]) -> DeadLetterQuerySet:
        chosen = given_ids(options)
        if chosen is None:
            return selection_of(options).letters()
        letters = letters_of(chosen)
        missing = len(set(chosen)) - letters.count()
        if missing:
            raise CommandError(f"{missing} of {len(set(chosen))} ids do not exist; nothing was written")
        return letters

    def _note(self, problem: str) -> None:
        self.count += 1
        self.problems += bool(problem)
        if self.count % _PROGRESS_EVERY == 0:
            self.stderr.write(f"{self.count} letters")


def _contents(options: dict[str, Any]) -> Contents:
    if options["whole"]:
        return Contents.WHOLE
    return Contents.SHOWN if options["payload"] else Contents.NOTHING
