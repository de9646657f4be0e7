"""Celery 5.6 forgets what runs when a connection is lost; we do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery.worker import state
from kombu.asynchronous.timer import Timer

from hardening.twins.keeping import running_kept
from tests.helpers.twin_fixtures import nothing_runs

__all__ = ["nothing_runs"]  # A fixture.


class Processes:
    """As much of the pool as matters here."""

    def __init__(self, jobs: dict[int, Any]) -> None:
        self._cache = jobs
        self._busy_workers: set[int] = set()

    def _on_soft_timeout(self) -> None: ...

    def _on_hard_timeout(self) -> None: ...


def job(*, accepted: bool = True, ready: bool = False) -> Any:
    return SimpleNamespace(
        _accepted=accepted, ready=lambda: ready, _write_to=SimpleNamespace(inqW_fd=7 if accepted else 8)
    )


def forget(consumer: Any) -> None:
    """What Celery 5.6 does."""
    consumer.timer.clear()
    consumer.pool._pool._cache.clear()
    consumer.pool._pool._busy_workers.clear()


def consumer_with(**jobs: Any) -> Any:
    processes = Processes({int(name[1:]): each for name, each in jobs.items()})
    return SimpleNamespace(pool=SimpleNamespace(_pool=processes), timer=Timer())


def test_what_runs_is_kept_with_its_time_limit_and_the_rest_is_forgotten() -> None:
    consumer = consumer_with(_1=job(), _2=job(accepted=False), _3=job(ready=True))
    processes = consumer.pool._pool
    consumer.timer.call_after(60, processes._on_hard_timeout)
    consumer.timer.call_after(60, print)

    with running_kept(consumer, forgets=True):
        forget(consumer)

    assert list(processes._cache) == [1]
    assert processes._busy_workers == {7}
    assert [each.entry.fun for each in consumer.timer.queue] == [processes._on_hard_timeout]


def test_what_was_not_forgotten_is_not_doubled() -> None:
    consumer = consumer_with(_1=job())
    consumer.timer.call_after(60, consumer.pool._pool._on_soft_timeout)

    with running_kept(consumer, forgets=True):
        pass

    assert len(consumer.timer.queue) == 1


def test_a_request_that_never_began_stays_in_no_list() -> None:
    requests: Any = [SimpleNamespace(id="runs", time_start=1.0), SimpleNamespace(id="waits", time_start=None)]
    state.requests.update((request.id, request) for request in requests)

    with running_kept(consumer_with(_1=job()), forgets=True):
        assert len(state.requests) == 2

    assert list(state.requests) == ["runs"]


def test_other_versions_and_other_pools_are_left_alone() -> None:
    consumer = consumer_with(_1=job())
    with running_kept(consumer, forgets=False):
        forget(consumer)
    assert consumer.pool._pool._cache == {}

    with running_kept(SimpleNamespace(pool=SimpleNamespace(), timer=None), forgets=True):
        pass
