"""Due times and what became of each: was it sent, when, by whom, and did its task end?"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from beat_leader.choice import chosen_ticks
from beat_leader.cli import moment
from beat_leader.ticks import Outcome, State, Tick, TicksUnavailable
from hardening.core.commands import app_with_tasks, positive

_PAGE = 1000
_MOST_LOOKED_AT = 100_000


class Command(BaseCommand):
    help = "List due times, the latest first, with the decision and what became of the task."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--schedule", help="only of this schedule")
        parser.add_argument("--state", choices=[each.value for each in State], help="only in this state")
        parser.add_argument(
            "--outcome",
            choices=[each.value or "unknown" for each in Outcome],
            help="only those whose task ended so",
        )
        parser.add_argument("--limit", type=positive, default=50, help="at most so many (default: 50)")
        parser.add_argument("--json", action="store_true", help="print JSON, one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        app = app_with_tasks()
        try:
            for tick in _found(app, options):
                self.stdout.write(json.dumps(_data(tick)) if options["json"] else _text(tick))
        except TicksUnavailable as exc:
            raise CommandError(str(exc), returncode=2) from exc


def _found(app: Any, options: dict[str, Any]) -> list[Tick]:
    ticks = chosen_ticks(app)
    outcome = {None: None, "unknown": ""}.get(options["outcome"], options["outcome"])
    found: list[Tick] = []
    before: tuple[int, str] | None = None
    for _ in range(_MOST_LOOKED_AT // _PAGE):
        page = ticks.history(options["schedule"], limit=_PAGE, before=before)
        found += [
            each
            for each in page
            if options["state"] in (None, each.state) and outcome in (None, each.outcome)
        ]
        if len(page) < _PAGE or len(found) >= options["limit"]:
            break
        before = (page[-1].due_ms, page[-1].schedule)
    return found[: options["limit"]]


def _data(tick: Tick) -> dict[str, Any]:
    return {
        "schedule": tick.schedule,
        "due": tick.due_ms / 1000,
        "state": tick.state.value,
        "why": tick.why,
        "count": tick.count,
        "first_due": None if tick.first_ms is None else tick.first_ms / 1000,
        "sent": _seconds(tick.sent_ms),
        "late_seconds": _seconds(tick.late_ms),
        "epoch": tick.epoch,
        "task_id": tick.task_id,
        "outcome": tick.outcome.value or "unknown",
        "started": _seconds(tick.started_ms),
        "ended": _seconds(tick.ended_ms),
        "detail": tick.detail,
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _text(tick: Tick) -> str:
    late = "" if tick.late_ms is None else f" {tick.late_ms / 1000:.1f} s late by epoch {tick.epoch}"
    many = f" ({tick.count} due times)" if tick.count > 1 else ""
    why = f": {tick.why}" if tick.why else ""
    outcome = tick.outcome.value if tick.state is State.SENT else ""
    head = f"{moment(tick.due_ms / 1000)}  {tick.schedule}  {tick.state.value}"
    return f"{head}{many}{late}{why}  {outcome}".rstrip()
