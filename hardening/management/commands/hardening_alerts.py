"""Looks at the conditions and has their alerts delivered, as every worker does: for when none runs."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.alerts.book import Phase
from hardening.alerts.engine import EVERY_SECONDS, Alerts, Turn
from hardening.alerts.outlet import Settled
from hardening.core.apps import NoCeleryApp, celery_app

_PATIENCE_SECONDS = 45.0


class Command(BaseCommand):
    """`manage.py hardening_alerts [--once] [--json]`."""

    help = "Look at the conditions of alerts and tell the channels, without a worker, until SIGTERM."
    requires_system_checks: list[str] = []  # What is wrong elsewhere must not silence it.

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="look once at what is due, deliver, show what is open, and end: for cron. Exit code 1 if "
            "something could not be looked at or delivered",
        )
        parser.add_argument("--json", action="store_true", help="print JSON, one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
        except NoCeleryApp as exc:
            raise CommandError(str(exc)) from exc
        app.loader.import_default_modules()  # The app's tasks may bring conditions.
        alerts = Alerts(app)
        try:
            if options["once"]:
                self._once(alerts, as_json=options["json"])
            else:
                self._forever(alerts, as_json=options["json"])
        finally:
            alerts.close()

    def _forever(self, alerts: Alerts, *, as_json: bool) -> None:
        stop = threading.Event()
        before = {
            each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            while not stop.is_set():
                self._show(alerts.turn(), as_json=as_json)
                stop.wait(EVERY_SECONDS)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _once(self, alerts: Alerts, *, as_json: bool) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        problems = 0
        for turn in _turns(alerts, until):
            self._show(turn, as_json=as_json)
            problems += len(turn.unknown) + sum(bool(each.error) for each in turn.settled) + turn.unanswered
        for condition in alerts.conditions():
            for subject, incident in alerts.book(condition).incidents.items():
                if incident.phase is Phase.OPEN:
                    row = {"condition": condition.name, "subject": subject, "opened_at": incident.opened}
                    row |= {"summary": incident.summary, "detail": incident.detail, "link": incident.link}
                    self._line(f"open: {condition.name}: {incident.summary}", {"open": row}, as_json=as_json)
        if problems or alerts.busy:
            raise CommandError("not everything could be looked at and delivered; it is tried again next time")

    def _show(self, turn: Turn, *, as_json: bool) -> None:
        for name, why in turn.unknown.items():
            self._line(
                f"unknown: {name}: {why}", {"unknown": {"condition": name, "why": why}}, as_json=as_json
            )
        for each in turn.settled:
            self._line(_told(each), {"told": _row(each)}, as_json=as_json)
        if turn.unanswered:
            self._line("the shared store does not answer", {"unanswered": True}, as_json=as_json)

    def _line(self, text: str, row: dict[str, Any], *, as_json: bool) -> None:
        self.stdout.write(json.dumps(row) if as_json else text)
        self.stdout.flush()


def _turns(alerts: Alerts, until: float) -> Iterator[Turn]:
    """A turn that looks, and those that write down what was delivered."""
    yield alerts.turn()
    while alerts.busy and time.monotonic() < until:
        time.sleep(0.05)
        yield alerts.turn()


def _told(each: Settled) -> str:
    what = f"FAILED, {each.error}" if each.error else "delivered"
    return f"{each.channel}: {what}: {each.job.notice.title}"


def _row(each: Settled) -> dict[str, Any]:
    return {"channel": each.channel, "error": each.error, "notice": each.job.notice.as_dict()}
