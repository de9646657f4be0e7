"""Tasks that fail and are tried again, each in its own way; every start leaves a line with its time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import requests
from celery import Task, shared_task
from celery.exceptions import Reject

from hardening import RetryLater
from hardening.core.identity import ATTEMPTS_HEADER, PARKED_HEADER
from hardening.history import decode_history

from .effects import hold, record


def tried(name: str, **options: Any) -> Callable[[Callable[..., Any]], Task]:
    """Celery's shared_task, with options that its types do not know."""
    made: Callable[[Callable[..., Any]], Task] = shared_task(name=name, bind=True, **options)
    return made


def began(task: Task) -> None:
    """One line: task, id, retries, time, parks."""
    request: Any = task.request
    parked = getattr(request, PARKED_HEADER, None) or 0
    record(f"{task.name} {request.id} {request.retries} {time.time():.3f} {parked}")


def is_up(dependency: str) -> bool:
    """Whether the test says that it works."""
    return Path(f"{os.environ['TEST_EFFECTS']}.{dependency}").exists()


@tried("flaky")
def flaky(self: Task, value: Any = None) -> Any:
    """Fails twice; then says which attempts its message carried."""
    began(self)
    if self.request.retries < 2:
        raise ConnectionError("not yet")
    carried = decode_history(getattr(self.request, ATTEMPTS_HEADER, None))
    record(f"carried {self.request.id} {' '.join(f'{a.number}:{a.error_class}' for a in carried)}")
    return value


@tried(
    "down_for_long",
    retry_policy={"base": 0.3, "cap": 0.6, "floor": 0.2, "max_attempts": 4},
)
def down_for_long(self: Task) -> None:
    began(self)
    raise ConnectionError("no answer")


@tried("down_on_schedule", retry_policy={"delays": "0.2 s, 0.7 s"})
def down_on_schedule(self: Task) -> None:
    began(self)
    raise ConnectionError("no answer")


@tried("fetch", retry_policy={"max_attempts": 2})
def fetch(self: Task, url: str) -> None:
    began(self)
    requests.get(url, timeout=10).raise_for_status()


@tried("fetch_soon", retry_policy={"max_attempts": 2, "retry_after_cap": 1})
def fetch_soon(self: Task, url: str) -> None:
    began(self)
    requests.get(url, timeout=10).raise_for_status()


@tried("strict")
def strict(self: Task, one: int, two: int) -> None:
    began(self)


@tried("backing_off", retry_backoff=True)
def backing_off(self: Task) -> None:
    began(self)
    if not self.request.retries:
        raise self.retry(exc=ConnectionError("not yet"))


@tried("counting_down", retry_backoff=120)
def counting_down(self: Task) -> None:
    began(self)
    if not self.request.retries:
        raise self.retry(exc=ConnectionError("not yet"), countdown=0.8)


@tried("broad", autoretry_for=(Exception,))
def broad(self: Task) -> None:
    began(self)
    raise KeyError("a defect")


@tried("rejecting", autoretry_for=(Exception,))
def rejecting(self: Task) -> None:
    began(self)
    raise Reject("no use", requeue=False)


@tried(
    "ageing",
    autoretry_for=(ConnectionError,),
    max_retries=None,
    retry_policy={"max_age": 2},
)
def ageing(self: Task) -> None:
    began(self)
    raise ConnectionError("no answer")


@tried("later")
def later(self: Task, when: float | str) -> None:
    began(self)
    if not self.request.retries:
        raise RetryLater(datetime.fromisoformat(when) if isinstance(when, str) else when)


@tried("unknown")
def unknown(self: Task) -> None:
    began(self)
    raise RuntimeError("what is this?")


class Misfit(Exception):
    """Cannot be pickled and made again: its constructor wants more than its args."""

    def __init__(self, one: str, *, two: str) -> None:
        super().__init__(one)
        self.two = two


@tried("misfit", retry_policy={"max_attempts": 2})
def misfit(self: Task) -> None:
    began(self)
    raise Misfit("first", two="second")


@tried("acknowledged_early", early_ack="a lost one is harmless")
def acknowledged_early(self: Task) -> None:
    began(self)
    raise ConnectionError("no answer")


@tried("limited", autoretry_for=(ConnectionError,), max_retries=1)
def limited(self: Task, by_hand: int | None = None) -> None:
    """Retried by Celery up to the task's limit, or by hand up to the call's."""
    began(self)
    if by_hand is None:
        raise ConnectionError("no answer")
    raise self.retry(exc=ConnectionError("no answer"), max_retries=by_hand)


@tried("stubborn")
def stubborn(self: Task) -> None:
    """Held at its first attempt until the test says so; then it asks for a retry."""
    began(self)
    if not self.request.retries:
        hold(self.name)
        raise self.retry(exc=ConnectionError("not yet"), countdown=0.1)


@tried("ask_supplier", dependency="supplier")
def ask_supplier(self: Task) -> None:
    began(self)
    if not is_up("supplier"):
        raise ConnectionError("the supplier does not answer")


class CourierDown(Exception):
    """A rule of the project's says what it depends on."""


@tried("ask_courier")
def ask_courier(self: Task) -> None:
    began(self)
    if not is_up("courier"):
        raise CourierDown("the courier does not answer")


@tried("unhurried")
def unhurried(self: Task) -> None:
    began(self)
