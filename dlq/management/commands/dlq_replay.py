"""Sends dead letters again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import add_filters, add_selection, as_json, ids_of, operator, summary_of_skipped
from dlq.errors import UnknownQueue
from dlq.repairing import add_repair, repair_of
from dlq.replay import replay


class Command(BaseCommand):
    help = "Send dead letters again. Exit code 1 when one could not be sent or an id does not exist."
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_selection(parser)
        add_filters(parser, queue="--from-queue")
        parser.add_argument("--queue", help="send them to this queue instead of where they came from")
        parser.add_argument(
            "--force-queue", action="store_true", help="also to a queue that the Celery app does not know"
        )
        add_repair(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        ids = ids_of(options)
        repair = repair_of(options)
        if repair is not None and len(ids) != 1:
            raise CommandError("a repaired message is that of one letter: give one id")
        try:
            outcome = replay(
                ids,
                repair=repair,
                by=operator(),
                queue=options["queue"],
                force_queue=options["force_queue"],
                dry_run=options["dry_run"],
            )
        except UnknownQueue as exc:
            raise CommandError(f"{exc}. To send there all the same: --force-queue") from exc
        if options["json"]:
            self.stdout.write(as_json(outcome.as_dict()))
        else:
            verb = "would be sent" if outcome.dry_run else "sent"
            self.stdout.write(f"{len(outcome.sent)} {verb}")
            if outcome.skipped:
                self.stdout.write(f"skipped: {summary_of_skipped(outcome.skipped)}")
            for letter_id, error in outcome.failed.items():
                self.stderr.write(f"{letter_id}: {error}")
        if outcome.failed or outcome.skipped.get("missing"):
            raise CommandError(f"{len(ids) - len(outcome.sent)} of {len(ids)} letters were not sent")
