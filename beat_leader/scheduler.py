"""LeaderScheduler: what `celery beat` runs. One of any number leads, and the others wait to take over.

Celery builds it twice, one time for its banner: nothing is connected to, and nothing starts, before the first
tick. A tick never raises, for Celery's loop would end with it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from celery import beat
from celery.result import denied_join_result
from django.db import connections

from hardening.core.identity import SUPERSEDED_HEADER

from .beating import Beating
from .dispatch import BrokerAway, Job, OwnFault
from .message import options_of
from .producing import Line

__all__ = ["LeaderScheduler"]

logger = logging.getLogger("beat_leader")

_TICK_SECONDS = 0.5
"""The longest sleep between two ticks: in it nothing is noticed."""

_Scheduler: Any = beat.Scheduler


def _close_broken() -> None:
    """A lazy argument may have asked a database that was started anew."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()


class LeaderScheduler(_Scheduler):  # type: ignore[misc]
    """Sends through Celery's own `apply_entry` and `apply_async`: who patches those sees every message."""

    info = "    . schedules -> sent by the one Beat that leads; the others stand by"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "lazy": True})
        self.max_interval = _TICK_SECONDS
        self._beating: Beating | None = None
        self._line: Line | None = None
        self._failures: list[Exception] = []
        self._in_tick = False
        self._closed = False
        self._said: set[str] = set()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One look at what is due. Returns the seconds to the next one."""
        if self._closed:
            return _TICK_SECONDS
        self._in_tick = True
        try:
            return min(_TICK_SECONDS, self._started().tick())
        except Exception as exc:
            self._complain(exc)
            return _TICK_SECONDS
        finally:
            self._in_tick = False

    def close(self) -> None:
        """Resign at once. Celery calls it in the handler of SIGTERM and again when its loop has ended: in the
        middle of a tick only the second call can use the tick's connections."""
        if self._in_tick or self._closed:
            return
        self._closed = True
        if self._beating is not None:
            self._beating.stop()
        if self._line is not None:
            self._line.drop()

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        """As Celery's, which `apply_entry` calls and whose errors it keeps to itself."""
        try:
            return super().apply_async(entry, producer=producer, advance=False, **kwargs)
        except Exception as exc:
            self._failures.append(exc)
            raise

    def publish(self, job: Job) -> None:
        """Returns when the broker has the message; raises otherwise."""
        assert self._line is not None
        assert self._beating is not None
        producer = self._line.producer()
        entry = self._entry(job, self._beating.now())
        self._failures.clear()
        # Nobody here waits for results: the result backend is not asked to subscribe to any.
        with denied_join_result():
            self.apply_entry(entry, producer=producer)
        if self._failures:
            failure = self._failures.pop()
            _close_broken()
            if self._line.is_own_fault(failure):
                raise OwnFault(str(failure)) from failure
            away = self._line.is_away(failure)
            self._line.drop()
            if away:
                raise BrokerAway(str(failure)) from failure
            raise failure

    def _entry(self, job: Job, now: float) -> Any:
        task = self.app.tasks.get(job.entry.task)
        options = options_of(job.entry, due_ms=job.due_ms, next_ms=job.next_ms, now=now)
        if task is not None and getattr(task, "expires", None) is not None:
            options["expires"] = job.entry.options.get("expires") or task.expires
            # It does not expire for the next due time's sake.
            options["headers"].pop(SUPERSEDED_HEADER, None)
        return self.Entry(
            name=job.entry.name,
            task=job.entry.task,
            schedule=job.entry.when,
            args=job.entry.args,
            kwargs=dict(job.entry.kwargs),
            options=options,
            last_run_at=datetime.fromtimestamp(job.due_ms / 1000, UTC),
            app=self.app,
        )

    def _started(self) -> Beating:
        if self._beating is None:
            beating = Beating.of(self.app, self.publish)
            self._line = Line(self.app, beating.may_send)
            self._beating = beating
            beating.start()
        return self._beating

    def _complain(self, exc: Exception) -> None:
        kind = f"{type(exc).__name__}: {exc}"
        if self._beating is not None:
            self._beating.failed(kind)
        if kind not in self._said and len(self._said) < 100:
            self._said.add(kind)
            logger.error("a tick of Beat failed; it goes on", exc_info=exc)
