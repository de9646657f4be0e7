"""Lists what is revoked, revokes, and takes revokes back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.conf import load_settings
from hardening.core.apps import celery_app
from hardening.core.errors import HardeningError
from hardening.retries.durations import text_of
from hardening.revoked.control import keep
from hardening.revoked.rules import LOOK_EVERY_SECONDS, Revoke
from hardening.revoked.store import Changes, RevokedStore, chosen_revoked

logger = logging.getLogger("hardening")


class Command(BaseCommand):
    """`manage.py hardening_revoked list | add ID ... | forget ID ...`."""

    help = "Show, add or take back revokes of tasks. Exit code 1 when one to forget is not revoked."
    # A revoke must be within reach also while a check fails.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        listing = commands.add_parser("list", help="what is revoked, the latest first")
        add = commands.add_parser("add", help="revoke tasks, also while no worker runs")
        add.add_argument("ids", nargs="+", metavar="ID", help="ids of tasks")
        forget = commands.add_parser("forget", help="let tasks run that were revoked by mistake")
        forget.add_argument("ids", nargs="*", metavar="ID", help="ids of tasks")
        forget.add_argument(
            "--stamp",
            action="append",
            default=[],
            metavar="HEADER=VALUE",
            help="a stamp that was revoked; a value that is no text as JSON: HEADER=7 is tried as both",
        )
        for each in (add, forget):
            each.add_argument("--dry-run", action="store_true", help="change nothing")
        for each in (listing, add, forget):
            each.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
            store = chosen_revoked(app)
            if options["command"] == "add":
                self._add(app, **options)
            elif options["command"] == "list":
                self._list(store.changes(), as_json=options["json"])
            else:
                self._forget(store, **options)
        except HardeningError as exc:
            raise CommandError(str(exc)) from exc

    def _list(self, found: Changes, *, as_json: bool) -> None:
        marks = sorted(found.revoked, key=lambda mark: -mark.at)
        if as_json:
            revoked = [{**_plain(mark.revoke), "at": mark.at, "until": mark.until} for mark in marks]
            self._json({"now": found.now, "revoked": revoked})
            return
        self.stdout.write(f"{len(marks)} revoked")
        for mark in marks:
            at = datetime.fromtimestamp(mark.at, UTC).isoformat(timespec="seconds")
            left = text_of(mark.until - found.now)
            self.stdout.write(f"  {mark.revoke.shown:<40} at {at}, remembered for another {left}")

    def _add(self, app: Celery, *, ids: list[str], dry_run: bool, **options: Any) -> None:
        revokes = [Revoke(task_id) for task_id in dict.fromkeys(ids)]
        if not dry_run:
            keep(app, revokes)
            try:
                app.control.revoke([revoke.value for revoke in revokes])
            # kombu and its transports raise what they like. It is kept, and that is what counts.
            except Exception as exc:
                self.stderr.write(
                    f"kept, but the workers could not be told; they find it by themselves: {exc}"
                )
        if options["json"]:
            self._json({"revoked": [_plain(revoke) for revoke in revokes], "dry_run": dry_run})
        else:
            self.stdout.write(f"{len(revokes)} {'would be ' if dry_run else ''}revoked")

    def _forget(self, store: RevokedStore, *, dry_run: bool, **options: Any) -> None:
        asked = [*(Revoke(task_id) for task_id in options["ids"]), *_stamps(options["stamp"])]
        if not asked:
            raise CommandError("name at least one task id, or a --stamp")
        known = {mark.revoke for mark in store.changes().revoked}
        forgotten = [revoke for revoke in asked if revoke in known]
        if not dry_run:
            # Those that the store does not know as well: a worker may have one that could not be kept.
            store.forget(asked, ttl_seconds=load_settings()[0].revoked_rules.expires)
            for revoke in forgotten:
                logger.warning("the revoke of %s was taken back by an operator", revoke.shown)
        missing = _missing(options["ids"], options["stamp"], forgotten)
        if options["json"]:
            told = [_plain(revoke) for revoke in forgotten]
            self._json({"forgotten": told, "not_revoked": missing, "dry_run": dry_run})
        else:
            when = "" if dry_run or not forgotten else f"; workers know within {LOOK_EVERY_SECONDS:g} s"
            self.stdout.write(f"{len(forgotten)} {'would be ' if dry_run else ''}forgotten{when}")
        if missing:
            raise CommandError(f"not revoked, as far as the store knows: {', '.join(missing)}")

    def _json(self, found: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(found, indent=2))


def _plain(revoke: Revoke) -> dict[str, Any]:
    if revoke.header is None:
        return {"id": revoke.value}
    return {"header": revoke.header, "stamp": revoke.value}


def _stamps(texts: list[str]) -> Iterator[Revoke]:
    for text in texts:
        header, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"a stamp is HEADER=VALUE, not {text!r}")
        yield Revoke(value, header)
        try:
            other = json.loads(value)
        except ValueError:
            continue
        if isinstance(other, (int, float)):
            yield Revoke(other, header)


def _missing(ids: list[str], stamps: list[str], forgotten: list[Revoke]) -> list[str]:
    shown = {(revoke.header is None, revoke.shown) for revoke in forgotten}
    asked = [*((True, task_id) for task_id in ids), *((False, stamp) for stamp in stamps)]
    return [text for is_id, text in asked if (is_id, text) not in shown]
