"""Takes letters that were parked on the broker into the database."""

from __future__ import annotations

import sys
from typing import Any

from celery import Celery
from django.core.management.base import BaseCommand, CommandError, CommandParser
from kombu.exceptions import KombuError

from dlq.cli import as_json, positive
from dlq.conf import dlq_settings
from dlq.ingest import ingest
from hardening.core.apps import celery_app
from hardening.core.errors import HardeningError
from hardening.core.parking import refused_queue


class Command(BaseCommand):
    help = "Take letters that were parked on the broker into the database, oldest first."
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=positive, help="at most so many (default: all)")
        parser.add_argument(
            "--refused", action="store_true", help="those that the database refused before, once each"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        self.taken = self.refused = 0
        try:
            self._ingest(celery_app(), sys.maxsize if options["limit"] is None else options["limit"], options)
        except (HardeningError, KombuError, OSError) as exc:
            raise CommandError(
                f"{self.taken} letters taken in, the others are still on the broker: {exc}"
            ) from exc
        if options["json"]:
            self.stdout.write(as_json({"taken": self.taken, "refused": self.refused}))
        else:
            self.stdout.write(f"{self.taken} letters taken in")
        if self.refused:
            raise CommandError(
                f"{self.refused} letters were refused by the database, the log says why; they are kept in "
                f"the queue {refused_queue()}. Remove the cause, then: manage.py dlq_ingest --refused"
            )

    def _ingest(self, app: Celery, limit: int, options: dict[str, Any]) -> None:
        while (left := limit - self.taken - self.refused) > 0:
            # What is refused again goes to the end of its own queue: a second round would meet it again.
            batch = left if options["refused"] else min(left, max(1, dlq_settings().ingest_batch))
            done = ingest(app, limit=batch, refused=options["refused"])
            self.taken += done.stored
            self.refused += done.refused
            if options["refused"] or done.stored + done.refused < batch:
                return
