"""The database's time: leases and the shared pace compare times of processes whose own clocks differ."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connections
from django.utils import timezone

__all__ = ["DatabaseClock", "database_now"]

_SYNC_EVERY_SECONDS = 30.0
_QUESTIONS = {"postgresql": "SELECT clock_timestamp()", "mysql": "SELECT UTC_TIMESTAMP(6)"}


class DatabaseClock:
    """Asked for the time now and then; in between it goes on by this process's monotonic clock."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._known: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The database's time, as columns store it."""
        here = time.monotonic()
        if self._known is None or here - self._known[1] > _SYNC_EVERY_SECONDS:
            self._known = self._ask(), time.monotonic()
            here = self._known[1]
        moment = self._known[0] + timedelta(seconds=here - self._known[1])
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def _ask(self) -> datetime:
        question = _QUESTIONS.get(connections[self._alias].vendor)
        if question is None:  # A file: all who use it are on this machine.
            return datetime.now(UTC)
        with connections[self._alias].cursor() as cursor:
            cursor.execute(question)
            found: datetime = cursor.fetchone()[0]
        return found if found.tzinfo else found.replace(tzinfo=UTC)


_clocks: dict[str, DatabaseClock] = {}


def database_now(alias: str) -> datetime:
    """The same of a clock that this process keeps: for who needs it once."""
    clock = _clocks.setdefault(alias, DatabaseClock(alias))
    return clock.now()
