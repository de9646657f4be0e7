"""A store that falls silent during an outage lets no herd loose, and holds nobody for long either."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task

from hardening.retries.outage import Outage
from hardening.retries.traffic import Held, Traffic
from hardening.store import StoreUnavailable
from hardening.stores.memory import MemoryStore
from tests.helpers.traffic import fail


class Store(MemoryStore):
    silent = False

    def read(self, key: str) -> Any:
        if self.silent:
            raise StoreUnavailable("a time-out")
        return super().read(key)


class Charge(Task):
    name = "charge"
    dependency = "bank"


class Worker:
    """One process, its store and its clock."""

    def __init__(self) -> None:
        app = Celery("silent", broker="memory://", set_as_current=False)
        self.task = app.register_task(Charge())
        self.store, self.now = Store(), 100.0
        self.traffic = Traffic(app, store=self.store, clock=lambda: self.now, rng=lambda: 0.5)

    def start(self) -> Held | None:
        execution = SimpleNamespace(
            task=self.task, request=SimpleNamespace(), task_id="1", probes=[], concerned=True
        )
        return self.traffic.admit(execution)


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_an_outage_that_was_read_goes_on_when_the_store_falls_silent(worker: Worker) -> None:
    fail(worker.store, "bank", 20)
    assert worker.start() is not None
    worker.store.silent = True
    for _ in range(10):
        worker.now += 1
        assert worker.start() == Held(dependency="bank", seconds=7.5)


def test_it_does_not_outlive_the_longest_wait(worker: Worker) -> None:
    fail(worker.store, "bank", 20)
    worker.start()
    worker.store.silent = True
    worker.now += Outage().longest_wait + 1
    assert worker.start() is None


def test_an_outage_that_nobody_read_of_holds_nobody(worker: Worker) -> None:
    fail(worker.store, "bank", 20)
    worker.store.silent = True
    assert worker.start() is None


def test_a_store_that_answers_again_has_the_last_word(worker: Worker) -> None:
    fail(worker.store, "bank", 20)
    worker.start()
    worker.store.silent = True
    worker.now += 2
    assert worker.start() is not None
    worker.store.silent = False
    worker.store.swap("outages", version=worker.store.read("outages").version, value=None, ttl_seconds=1)
    worker.now += 6
    assert worker.start() is None
