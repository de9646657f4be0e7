"""Workers that share a store and die at any point, in one process: for tests of what is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import WorkerLostError
from celery.worker import state

from hardening.core.identity import RECOVERED_HEADER
from hardening.poison import watch as watches
from hardening.poison.case import Case
from hardening.poison.ledger import KEY, Ledger
from hardening.poison.policy import Decision
from hardening.poison.step import PoisonStep
from hardening.poison.terms import Poison
from hardening.poison.watch import PoisonWatch
from hardening.poison.work import digest_of
from hardening.reception import Arrival
from hardening.twins import watch as twin_watches
from hardening.twins.records import HOLDER_KEY
from tests.helpers.hardened_apps import request_of
from tests.helpers.twin_messages import Clock, Prefetch, Switchable, twins_of

__all__ = ["KILLED", "Killed", "PoisonWorker", "came_back", "case_of", "info_of", "killed_at"]

KILLED = WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL) Job: 3.")


class Killed(BaseException):
    """Stands for the end of the worker's process, at this line."""


def info_of(exc: BaseException) -> ExceptionInfo:
    try:
        raise exc
    except BaseException:
        return ExceptionInfo()


def came_back(message: Any, *, recovered_from: str | None = None, on_rabbitmq: bool = False) -> Any:
    """The message as it is delivered again: given back, or taken from a silent worker."""
    message.delivery_info["redelivered"] = True
    if recovered_from is not None:
        message.headers[RECOVERED_HEADER] = {"holder": recovered_from, "times": 1, "at": 0.0}
    if on_rabbitmq:
        message.channel = SimpleNamespace(is_open=True)
    return message


def case_of(store: Switchable, message: Any) -> Case:
    """What the store knows."""
    return Case.read(store.read(KEY + digest_of(message)).value)


class PoisonWorker:
    """One worker of an app. What it is asked goes to its own watch, on the store that all share."""

    def __init__(
        self, app: Any, store: Switchable, clock: Clock, name: str = "w1", *, terms: Poison | None = None
    ) -> None:
        self.app, self.store, self.name = app, store, name
        self.terms = terms or Poison(base=0.001, cap=0.001)
        self.twins = twins_of(store, clock, name)
        self.ledger = Ledger(app, ttl_seconds=self.terms.window, store=store, clock=clock, wall=clock)
        self.watch = PoisonWatch(app, terms=self.terms, ledger=self.ledger, twins=self.twins, clock=clock)
        self.watch.at_hand_over = True
        self.watch.worker = name
        self.consumer = SimpleNamespace(qos=Prefetch(), hostname=name, app=app)
        self.acknowledged: list[Any] = []
        self.ended: list[Any] = []

    def works(self) -> None:
        """The process's requests are this worker's from now on."""
        watches._all[self.app] = self.watch
        twin_watches._all[self.app] = self.twins

    def takes(self, message: Any) -> bool:
        """Whether reception lets a message start; else it waits, was moved, or was ended."""
        self.works()
        task = self.app.tasks[message.headers["task"]]
        step = PoisonStep(self.watch).for_task(task)
        if step is None or not step.concerns(message):
            return True
        return not step.take(self.arrival(message))

    def arrival(self, message: Any) -> Arrival:
        return Arrival(
            self.app.tasks[message.headers["task"]],
            message,
            self.consumer,
            lambda: self.acknowledged.append(message),
            lambda: None,
            lambda: self._request(message),
        )

    def decides(self, message: Any) -> Decision:
        self.works()
        return self.watch.look(self.arrival(message))[1]

    def _request(self, message: Any) -> Any:
        request = request_of(self.app, message)
        self.ended.append(request)
        return request

    def starts(self, message: Any) -> Any:
        """A request of the message that a child has taken up."""
        self.works()
        request = request_of(self.app, message)
        assert not request.revoked()
        request.on_accepted(4242, time.monotonic())
        return request

    def dies(self) -> None:
        """Its process is gone: nobody says any more that it lives, and it knows of no request."""
        key = HOLDER_KEY + self.twins.holder
        found = self.store.read(key)
        if found.value is not None:
            self.store.swap(key, version=found.version, value=None, ttl_seconds=1)
        state.reset_state()


@contextmanager
def killed_at(owner: Any, name: str, *, after: bool = False) -> Iterator[None]:
    """The process ends before, or after, it has called this."""
    own: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if after:
            own(*args, **kwargs)
        raise Killed

    setattr(owner, name, call)
    try:
        yield
    except Killed:
        pass
    else:
        raise AssertionError(f"{name} was not called")
    finally:
        if name in vars(owner):
            delattr(owner, name)
