"""Lists, counts and cancels delayed tasks."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentTypeError
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.conf import load_settings
from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.errors import HardeningError
from hardening.delayed.cancelling import cancel_delayed, found_delayed
from hardening.delayed.entry import Cancelled, Delayed
from hardening.delayed.store import chosen_delayed_store


class Command(BaseCommand):
    """`manage.py hardening_delayed list | count | cancel ID... | cancelled`."""

    help = "List, count and cancel tasks that wait until they are due."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="what is parked, in the order in which it is released")
        listing.add_argument("--task-id", help="only those of this task id")
        listing.add_argument("--limit", type=_positive, default=50, help="at most so many (default: 50)")
        listing.add_argument("--offset", type=int, default=0, help="leave out so many")
        count = actions.add_parser("count", help="how many are parked")
        cancel = actions.add_parser(
            "cancel", help="take tasks off for good. Exit code 1 when an id is not parked"
        )
        cancel.add_argument("ids", nargs="+", metavar="ID", help="task ids, or ids of the list")
        cancel.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")
        records = actions.add_parser("cancelled", help="who cancelled what within the last 7 days")
        records.add_argument("--limit", type=_positive, default=50, help="at most so many (default: 50)")
        for action in (listing, count, cancel, records):
            action.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
        except NoCeleryApp as exc:
            raise CommandError(str(exc)) from exc
        try:
            getattr(self, f"_{options['action']}")(app, options)
        except HardeningError as exc:
            raise CommandError(str(exc)) from exc

    def _list(self, app: Celery, options: dict[str, Any]) -> None:
        store = chosen_delayed_store(app, load_settings()[0].delayed_rules)
        if options["task_id"] is not None:
            entries = found_delayed(app, options["task_id"])
        else:
            entries = store.page(offset=max(0, options["offset"]), limit=options["limit"])
        if options["json"]:
            self._print([_as_dict(entry) for entry in entries])
            return
        for entry in entries:
            self.stdout.write(_line(entry))
        self.stderr.write(f"{len(entries)} of {store.count()} delayed tasks")

    def _count(self, app: Celery, options: dict[str, Any]) -> None:
        count = chosen_delayed_store(app, load_settings()[0].delayed_rules).count()
        if options["json"]:
            self._print({"count": count})
        else:
            self.stdout.write(str(count))

    def _cancel(self, app: Celery, options: dict[str, Any]) -> None:
        ids = options["ids"]
        if options["dry_run"]:
            found = {each: found_delayed(app, each) for each in ids}
            entries = [entry for each in found.values() for entry in each]
            missing = [each for each in ids if not found[each]]
            cancelled: list[dict[str, Any]] = [_as_dict(entry) for entry in entries]
            lines = [f"would be cancelled: {_line(entry)}" for entry in entries]
            untold = problem = ""
        else:
            app.loader.import_default_modules()
            outcome = cancel_delayed(app, ids, by=_operator())
            cancelled = [_record(record) for record in outcome.cancelled]
            lines = [
                f"cancelled: {each.id}  {each.task}[{each.task_id}]  due {_moment(each.due)}"
                for each in outcome.cancelled
            ]
            missing, untold, problem = list(outcome.missing), outcome.untold, outcome.problem
        if options["json"]:
            self._print(
                {
                    "dry_run": options["dry_run"],
                    "cancelled": cancelled,
                    "missing": missing,
                    "results_not_written": untold,
                }
            )
        else:
            for line in lines:
                self.stdout.write(line)
            if untold:
                self.stderr.write(f"cancelled, but some results stay pending: {untold}")
        if problem:
            raise CommandError(problem)
        if missing:
            raise CommandError(
                f"not parked, or released or cancelled before: {', '.join(missing)} (a task that no worker "
                "has met yet is still in its queue: hardening_revoked add stops it there)",
                returncode=1,
            )

    def _cancelled(self, app: Celery, options: dict[str, Any]) -> None:
        store = chosen_delayed_store(app, load_settings()[0].delayed_rules)
        records = store.cancellations(limit=options["limit"])
        if options["json"]:
            self._print([_record(record) for record in records])
            return
        for each in records:
            self.stdout.write(
                f"{each.id}  {_moment(each.at)}  {each.task}[{each.task_id}]  "
                f"due {_moment(each.due)}  by {each.by}"
            )

    def _print(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, indent=2))


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def _operator() -> str:
    """Who runs the command, for the record."""
    try:
        return f"command line: {getpass.getuser()}"
    except (KeyError, OSError):  # A container without an entry for this user.
        return "command line"


def _line(entry: Delayed) -> str:
    return (
        f"{entry.id}  due {_moment(entry.due)}  {entry.task}[{entry.task_id}]  {entry.queue}  "
        f"attempt {entry.attempt}  parked {_moment(entry.parked_at)}"
    )


def _as_dict(entry: Delayed) -> dict[str, Any]:
    return {
        "id": entry.id,
        "task_id": entry.task_id,
        "task": entry.task,
        "queue": entry.queue,
        "due": _moment(entry.due),
        "attempt": entry.attempt,
        "parked_at": _moment(entry.parked_at),
    }


def _record(record: Cancelled) -> dict[str, Any]:
    return {**asdict(record), "due": _moment(record.due), "at": _moment(record.at)}


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(seconds)
