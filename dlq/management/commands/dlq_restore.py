"""Takes discarded letters back."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.archive import NEWER, restore
from dlq.cli import add_filters, add_selection, as_json, ids_of, operator, summary_of_skipped
from dlq.models import DeadLetterQuerySet


class Command(BaseCommand):
    help = (
        "Open discarded letters again. One is left alone while a newer letter of the same work is open or "
        "being replayed. Exit code 1 when an id does not exist."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_selection(parser, every="every discarded letter")
        add_filters(parser, reason="--reason-code")
        parser.add_argument("--reason", default="", help="why, for the log")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = ids_of(options, fits=DeadLetterQuerySet.discarded)
        outcome = restore(ids, by=operator(), why=options["reason"], dry_run=options["dry_run"])
        if options["json"]:
            self.stdout.write(as_json(outcome.as_dict()))
        else:
            self.stdout.write(f"{len(outcome.restored)} {'would be ' if outcome.dry_run else ''}restored")
            if outcome.skipped:
                self.stdout.write(f"skipped: {summary_of_skipped(outcome.skipped)}")
            if outcome.skipped.get(NEWER):
                self.stdout.write(f"{NEWER}: a newer letter of the same work is open or being replayed")
        if outcome.skipped.get("missing"):
            raise CommandError(f"{outcome.skipped['missing']} of {len(ids)} ids do not exist")
