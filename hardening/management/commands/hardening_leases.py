"""Shows which worker holds what on Redis, and covers messages that no index knows."""

from __future__ import annotations

import json
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from kombu.exceptions import KombuError
from redis import RedisError

from hardening.conf import load_settings
from hardening.core.apps import NoCeleryApp, celery_app
from hardening.effective import transport_of
from hardening.leases.auditor import audit
from hardening.leases.envelope import as_recovered, named
from hardening.leases.store import LeaseStore
from hardening.leases.transport import open_store, plain_keys_of


class Command(BaseCommand):
    """`manage.py hardening_leases [--json] [--adopt] [--recover]`."""

    help = "Show the messages that workers hold on Redis, and those that no lease covers."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--recover",
            action="store_true",
            help="give what silent workers held to others, as every worker does: for when none runs any more",
        )
        parser.add_argument(
            "--adopt",
            action="store_true",
            help="give a lease to messages without one, so that they come back",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
        except NoCeleryApp as exc:
            raise CommandError(str(exc)) from exc
        if transport_of(app) != "redis":
            raise CommandError("the broker is not Redis: what workers hold is known to the broker alone")
        try:
            with app.connection_for_read() as connection:
                found = _look(connection.default_channel, adopt=options["adopt"], recover=options["recover"])
        except (RedisError, KombuError, OSError) as exc:
            raise CommandError(f"Redis does not answer: {exc}") from exc
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2))
            return
        for held in found["held"]:
            self.stdout.write(
                f"{held['task'] or '?':<40} {held['id']:<36}  lease ends in {held['seconds']:5.1f} s  "
                f"{held['queue']}  {held['holder']}"
            )
        if options["recover"]:
            count = len(found["recovered"])
            self.stdout.write(f"{count} message(s) of silent workers went back to their queues")
        self.stdout.write(f"{len(found['held'])} held, {len(found['orphans'])} without a lease")
        if found["orphans"]:
            done = (
                "have a lease now"
                if options["adopt"]
                else "would never come back: --adopt gives them a lease"
            )
            self.stdout.write(f"  {', '.join(found['orphans'])}: {done}")


def _recover(store: LeaseStore) -> list[str]:
    """What silent workers held goes back. The living have time to renew before, if nobody swept lately."""
    back: list[str] = []
    until = time.monotonic() + store.quiet_seconds + 1
    while time.monotonic() < until:
        found = store.recover(100, as_recovered)
        back += [each.tag for each in found.restored]
        if not found.more:
            time.sleep(0.2)
    return back


def _look(channel: Any, *, adopt: bool, recover: bool) -> dict[str, Any]:
    settings, _ = load_settings()
    store = open_store(channel, lease=settings.lease_terms, holder="")
    recovered = _recover(store) if recover else []
    held = []
    for tag, seconds, entry in store.held():
        task, task_id = named(entry.message)
        held.append(
            {
                "tag": tag,
                "task": task,
                "id": task_id,
                "queue": entry.list_key.partition("\x06")[0],
                "holder": entry.holder,
                "seconds": round(seconds, 3),
            }
        )
    orphans = audit(store, plain_keys_of(channel), dry_run=not adopt)
    store.client.connection_pool.disconnect()
    return {"held": held, "orphans": orphans, "recovered": recovered}
