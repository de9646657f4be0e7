"""The part of a request that a drain needs: whether it has begun, and that it then is not given back.

A request begins, or it is given back, whichever is claimed first; the claim is one `dict.setdefault`,
which no other thread can come between.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any
from weakref import WeakSet

from billiard.exceptions import Terminated
from celery.exceptions import WorkerLostError
from celery.worker.request import Request
from celery.worker.state import task_ready

from hardening.trace import error_of

from .drain import current_drain

__all__ = ["OPEN", "DrainableRequest", "refusal", "still_open"]

OPEN: WeakSet[Any] = WeakSet()
"""The requests of this process."""

_arrivals = itertools.count()

_BEGUN = "begun"
_GIVEN_BACK = "given back"


def still_open() -> list[Any]:
    """Those whose messages are with this worker, also what Celery 5.6 has on its timer and does not list."""
    return [each for each in tuple(OPEN) if not (each.acknowledged or each.is_given_back)]


class NotBegun(Exception):
    """The request was given back before its task began."""


class DrainableRequest(Request):
    """Celery's request, which begins or goes back, and not both."""

    was_cut = False
    """Whether its running task was ended at the end of the grace period."""

    is_abandoned = False
    """Whether its task could not be ended: the message goes back while it runs."""

    _cut_short = False

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(message, *args, **kwargs)
        self.arrived = next(_arrivals)
        OPEN.add(self)

    @property
    def has_begun(self) -> bool:
        """Whether its task runs or ran."""
        return vars(self).get("_fate") == _BEGUN

    @property
    def is_given_back(self) -> bool:
        """Whether it may not begin any more."""
        return vars(self).get("_fate") == _GIVEN_BACK

    def claim_for_return(self) -> bool:
        """Whether it is ours now to give back. True once at most."""
        return self._claim(_GIVEN_BACK) and self._is_first_claim()

    def claim_to_end(self) -> bool:
        """Whether it is ours to end here. False: it is given back."""
        return self._claim(_BEGUN)

    def _claim(self, fate: str) -> bool:
        found: str = vars(self).setdefault("_fate", fate)
        return found == fate

    def _is_first_claim(self) -> bool:
        mine = object()
        return vars(self).setdefault("_returns", mine) is mine

    def revoked(self: Any) -> bool:
        """Asked by Celery before it starts a task. While the worker drains none is started."""
        drain = current_drain()
        if drain is not None and drain.refuses(self):
            return True
        return bool(super().revoked())

    def on_accepted(self: Any, pid: Any, time_accepted: float) -> None:
        """The pool begins with the task; in a thread or a greenlet this can still be refused."""
        if not self._claim(_BEGUN):
            raise refusal()
        super().on_accepted(pid, time_accepted)

    def on_failure(self: Any, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """The task failed, or its child was killed at the end of the grace period."""
        if self.was_cut and isinstance(error_of(exc_info), (Terminated, WorkerLostError, SystemExit)):
            return self.end_cut()
        return super().on_failure(exc_info, send_failed_event, return_ok)

    def let_go(self) -> None:
        """Its message is about to go back unfinished."""

    def end_cut(self: Any) -> None:
        """Its task was ended: no failure, no retry, no letter. The message goes back."""
        task_ready(self)
        self._cut_short = True
        drain = current_drain()
        if drain is not None:
            drain.cut_short(self)

    def send_event(self: Any, type: str, **fields: Any) -> None:
        """Celery's gevent pool calls a greenlet that was killed a success."""
        if not self._cut_short:
            super().send_event(type, **fields)


def refusal() -> BaseException:
    """What ends a thread or a greenlet of a pool, and says nothing."""
    gevent = sys.modules.get("gevent")
    if gevent is not None and isinstance(gevent.getcurrent(), gevent.Greenlet):
        return gevent.GreenletExit()  # type: ignore[no-any-return]
    return NotBegun()
