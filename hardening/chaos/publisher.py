"""Publishes the plan, never far ahead of what has begun, and through every outage of the broker.

Each key is recorded before its publish and after it. A publish that fails is tried again, with the same id,
since nobody knows whether the broker has it: the second copy is a duplicate with a known cause. A chord is
the exception: sent again it would be another chord, so what nobody ever sees of it was not accepted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from celery import Celery, chain, chord, signals

from hardening.core.identity import KEY_HEADER

from .malformed import raw_message, send
from .plan import Item, Kind, Plan
from .records import Journal
from .tasks import failing, link, poison, quick, retrying, slow, total
from .witness import OWN

__all__ = ["Publisher"]

_PAUSE_SECONDS = 0.25
_MOST_TRIES = 240
_STANDSTILL_SECONDS = 1.0


class Publisher(threading.Thread):
    """A thread: ends when everything is published; `error` says why where it could not."""

    def __init__(
        self,
        app: Celery,
        plan: Plan,
        journal: Journal,
        *,
        started: Callable[[], int],
        ahead: int,
        queue: str,
        own: str | None = None,
    ) -> None:
        """`started`: how many tasks have begun so far; `ahead`: how many more may be published.

        `own` is the user's `module:function`, called with the number of tasks in place of the kit's workload.
        """
        super().__init__(name="chaos-publisher", daemon=True)
        self._app = app
        self._plan = plan
        self._journal = journal
        self._begun = started
        self._ahead = ahead
        self._queue = queue
        self._own = own
        self._stop_asked = threading.Event()
        self.error: BaseException | None = None
        self.failures = 0
        """Publishes that raised."""

    def stop(self) -> None:
        """Publish nothing more."""
        self._stop_asked.set()

    def run(self) -> None:
        try:
            self._quieten()
            if self._own:
                self._publish_own(self._own)
            else:
                self._publish_all()
        except BaseException as exc:
            self.error = exc

    def _quieten(self) -> None:
        # Celery would subscribe to each result.
        backend: Any = self._app.backend
        backend.on_task_call = lambda producer, task_id: {}
        backend.remove_pending_result = lambda result: result

    def _publish_all(self) -> None:
        awaited = 0
        for item in self._plan.items:
            self._wait_for_room(awaited)
            if self._stop_asked.is_set():
                return
            self._publish(item)
            if item.kind.starts:
                awaited += len(item.keys)

    def _wait_for_room(self, awaited: int) -> None:
        begun, since = self._begun(), time.monotonic()
        while awaited - self._begun() > self._ahead and not self._stop_asked.wait(0.01):
            now = self._begun()
            if now != begun:
                begun, since = now, time.monotonic()
            elif time.monotonic() - since > _STANDSTILL_SECONDS:
                return  # Some never begin: one more shall not wait for them.

    def _publish(self, item: Item) -> None:
        if item.kind is Kind.CHORD:
            self._journal.intend(*item.keys)
            try:
                self._send(item)
            except Exception:
                self.failures += 1
            else:
                self._journal.confirm(*item.keys[:-1])
            return
        head = item.keys[0]
        for _ in range(_MOST_TRIES):
            self._journal.intend(head)
            try:
                self._send(item)
            # Whatever the client raises in an outage; the last one is told.
            except Exception as exc:
                self.failures += 1
                self.error = exc
                if self._stop_asked.wait(_PAUSE_SECONDS):
                    return
            else:
                self.error = None
                self._journal.confirm(head)
                if item.kind is Kind.REVOKED:
                    self._revoke(head)
                return
        assert self.error is not None
        raise self.error

    def _revoke(self, key: str) -> None:
        try:
            self._app.control.revoke(key)
        except Exception:
            self.failures += 1
        else:
            self._journal.revoke(key)

    def _send(self, item: Item) -> None:
        head, details = item.keys[0], item.details
        match item.kind:
            case Kind.CHAIN:
                chain(*(link.s().set(task_id=key) for key in item.keys)).apply_async()
            case Kind.CHORD:
                header = [link.s().set(task_id=key) for key in item.keys[:-1]]
                chord(header, app=self._app)(total.s().set(task_id=item.keys[-1]))
            case Kind.MALFORMED:
                send(self._app, raw_message(details["malformation"], head), queue=self._queue)
            case Kind.SLOW | Kind.LONG:
                slow.apply_async((details["seconds"],), task_id=head)
            case Kind.FAILING:
                failing.apply_async(task_id=head)
            case Kind.RETRYING:
                retrying.apply_async((details["times"],), task_id=head)
            case Kind.POISON_CHILD | Kind.POISON_WORKER:
                whole = item.kind is Kind.POISON_WORKER
                poison.apply_async((whole, details["how"]), task_id=head)
            case _:
                quick.apply_async(task_id=head, **details)

    def _publish_own(self, path: str) -> None:
        module, _, function = path.partition(":")
        publish: Any = getattr(import_module(module), function)
        signals.before_task_publish.connect(self._intends, weak=False)
        signals.after_task_publish.connect(self._confirms, weak=False)
        try:
            publish(self._plan.tasks)
        finally:
            signals.before_task_publish.disconnect(self._intends)
            signals.after_task_publish.disconnect(self._confirms)

    def _intends(self, sender: Any = None, headers: Any = None, **_: Any) -> None:
        if (key := _own_key(headers)) is not None:
            self._journal.intend(key, kind=str(headers.get("task") or "?"))

    def _confirms(self, sender: Any = None, headers: Any = None, **_: Any) -> None:
        if (key := _own_key(headers)) is not None:
            self._journal.confirm(key)


def _own_key(headers: Any) -> str | None:
    if not headers or not headers.get("id") or str(headers.get("task", "")).startswith(OWN):
        return None
    return str(headers.get(KEY_HEADER) or headers["id"])
