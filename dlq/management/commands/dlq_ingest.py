"""Takes letters that were parked on the broker into the database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from kombu.exceptions import KombuError

from dlq.cli import as_json
from dlq.conf import dlq_settings
from dlq.ingest import ingest
from hardening.core.apps import celery_app
from hardening.core.errors import HardeningError


class Command(BaseCommand):
    help = "Take letters that were parked on the broker into the database, oldest first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, help="at most so many (default: all)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        limit: int | None = options["limit"]
        taken = 0
        try:
            app = celery_app()
            while limit is None or taken < limit:
                batch = (
                    dlq_settings().ingest_batch
                    if limit is None
                    else min(limit - taken, dlq_settings().ingest_batch)
                )
                got = ingest(app, limit=batch)
                taken += got
                if got < batch:
                    break
        except (HardeningError, KombuError, OSError) as exc:
            raise CommandError(
                f"{taken} letters taken in, the others are still on the broker: {exc}"
            ) from exc
        self.stdout.write(as_json({"taken": taken}) if options["json"] else f"{taken} letters taken in")
