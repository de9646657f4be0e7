"""When each schedule is due next, and what became of its last due time."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from beat_leader.cli import moment
from beat_leader.entry import SourceUnavailable
from beat_leader.outlook import Outlook, outlook
from beat_leader.ticks import TicksUnavailable
from hardening.core.commands import app_with_tasks, positive


class Command(BaseCommand):
    help = "List schedules in the order of their next due times."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--schedule", default="*", help="name, or a pattern such as 'reports.*'")
        parser.add_argument("--limit", type=positive, default=100, help="at most so many (default: 100)")
        parser.add_argument("--json", action="store_true", help="print JSON, one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            rows = outlook(app_with_tasks())
        except (SourceUnavailable, TicksUnavailable) as exc:
            raise CommandError(str(exc), returncode=2) from exc
        rows = [each for each in rows if fnmatchcase(each.entry.name, options["schedule"])]
        rows.sort(key=lambda each: (each.next_due is None, each.next_due or 0.0, each.entry.name))
        for row in rows[: options["limit"]]:
            self.stdout.write(json.dumps(_data(row)) if options["json"] else _text(row))


def _data(row: Outlook) -> dict[str, Any]:
    last = row.last
    return {
        "schedule": row.entry.name,
        "task": row.entry.task,
        "next_due": row.next_due,
        "overdue_seconds": row.overdue_seconds,
        "problem": row.problem,
        "last_due": None if last is None else last.due_ms / 1000,
        "last_state": None if last is None else last.state.value,
        "last_outcome": None if last is None else last.outcome.value or "unknown",
    }


def _text(row: Outlook) -> str:
    due = row.problem or ("never again" if row.next_due is None else moment(row.next_due))
    last = ""
    if row.last is not None:
        said = " ".join(filter(None, (row.last.state.value, row.last.outcome.value)))
        last = f"  last {moment(row.last.due_ms / 1000)} {said}"
    return f"{due}  {row.entry.name}{last}"
