"""Groups the letters that are there again, after an upgrade that makes fingerprints in another way."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import as_json, positive
from dlq.fingerprint import VERSION
from dlq.groups.regrouping import Regrouped, regroup


class Command(BaseCommand):
    help = (
        "Compute anew the fingerprints of letters that have one of another version, and move the letters "
        "with their counts, state, owner and note to their new groups. Workers may run; if it was killed, "
        "run it again. Exit code 1 when letters were left because others held them."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--all", action="store_true", help="those of this version too: after PROJECT_PACKAGES was changed"
        )
        parser.add_argument(
            "--batch", type=positive, default=500, help="letters in one transaction (default: 500)"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        shown = 0

        def show(done: Regrouped) -> None:
            nonlocal shown
            if not options["json"] and done.letters - shown >= 10_000:
                shown = done.letters
                self.stderr.write(f"{done.letters} letters")

        done = regroup(everything=options["all"], batch=options["batch"], after_batch=show)
        if options["json"]:
            self.stdout.write(as_json({"version": VERSION, **asdict(done)}))
        else:
            self.stdout.write(
                f"{done.letters} letters and {done.groups} groups looked at, "
                f"{done.moved} letters have a new fingerprint"
            )
        if done.left:
            raise CommandError(f"{done.left} letters were held by others: run it again")
