"""Does by hand, and at once, what retention does in workers a little at a time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import as_json
from dlq.conf import database_alias, dlq_settings
from dlq.retention.pruning import Pruned, due, prune
from hardening.core.connection import own_connection

_SLICE_SECONDS = 1.0


class Command(BaseCommand):
    help = (
        'Do what DLQ["RETENTION"] says: discard open letters that are too old, delete closed ones, drop '
        "items of old operations and old figures. Exit code 1 when something is left, or no retention is set."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if not dlq_settings().retention_rules.any:
            raise CommandError('no retention is set: nothing is ever deleted. See DLQ["RETENTION"]')
        if options["dry_run"]:
            found = due()
            if options["json"]:
                self.stdout.write(as_json({**found, "dry_run": True}))
            else:
                for name, count in found.items():
                    self.stdout.write(f"{name.replace('_', ' ')}: {count} would be")
            return
        total = Pruned()
        with own_connection(database_alias()):
            while True:
                done = prune(_SLICE_SECONDS)
                total.add(done)
                if not done.more or done.busy:
                    break
                if not options["json"]:
                    self.stderr.write(f"{total.rows} so far")
        if options["json"]:
            self.stdout.write(as_json(asdict(total)))
        else:
            self.stdout.write(
                f"{total.discarded} open letters discarded, {total.replayed_purged} replayed and "
                f"{total.discarded_purged} discarded ones deleted, {total.items} items of operations, "
                f"{total.figures} old figures"
            )
        if total.more:
            raise CommandError("something is left: another process does the same now")
