"""Takes letters of another environment into this store."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError

from dlq.cli import as_json
from dlq.errors import CannotSeal
from dlq.repairing import STANDARD
from dlq.text import without_credentials
from dlq.transfer.importing import Imported, import_lines, lines_of

_PROGRESS_EVERY = 1000


class Command(BaseCommand):
    help = (
        "Take the letters of a file that dlq_export --jsonl --whole wrote into this store. The same file "
        "twice is one letter each; a letter that is here is left as it is. Exit code 1 when lines are bad: "
        "they are left out."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help='JSON lines; "-": stdin')
        parser.add_argument("--origin", help="noted with each letter (default: the name of the file)")
        parser.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["file"]
        self.told = 0
        self.quiet = options["json"]
        self.done = Imported()
        with ExitStack() as stack:
            try:
                file = sys.stdin.buffer if path == STANDARD else stack.enter_context(Path(path).open("rb"))
            except OSError as exc:
                raise CommandError(f"{path} cannot be read: {exc.strerror}") from exc
            origin = options["origin"] or ("stdin" if path == STANDARD else Path(path).name)
            try:
                done = import_lines(
                    lines_of(file), origin=origin, dry_run=options["dry_run"], on_batch=self._tell
                )
            except (CannotSeal, OperationalError, InterfaceError) as exc:
                text = without_credentials(str(exc).strip())
                raise CommandError(
                    f"{self.done.imported} letters imported, then it ended: {text}. "
                    "The file may be read again"
                ) from exc
        self._report(done, options)

    def _tell(self, done: Imported) -> None:
        self.done = done
        if not self.quiet and done.imported - self.told >= _PROGRESS_EVERY:
            self.told = done.imported
            self.stderr.write(f"{done.imported} letters")

    def _report(self, done: Imported, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(as_json(done.as_dict()))
        else:
            would = "would be " if done.dry_run else ""
            self.stdout.write(f"{done.imported} {would}imported, {done.known} here already")
            for each in done.bad:
                self.stderr.write(f"line {each.number}: {each.why}")
        if done.bad_lines:
            raise CommandError(f"{done.bad_lines} bad lines were left out")
