"""A child that dies while it reads its job is a death of that job, whose task does not loop in the parent."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.pool import ApplyResult, Pool

from hardening.poison.death import EX_RECYCLE
from hardening.poison.unaccepted import leaves, watch_unaccepted


class Processes:
    """As Celery's AsynPool puts a job back whose child died."""

    mark_as_worker_lost = Pool.mark_as_worker_lost

    def __init__(self) -> None:
        self._state = 0
        self.put_back: list[Any] = []
        self.outbound_buffer: deque[Any] = deque()

    def _put_back(self, job: Any) -> None:
        self.put_back.append(job)

    def on_partial_read(self, job: Any, child: Any) -> None:
        if not job._accepted:
            self._put_back(job)


@pytest.fixture
def pool() -> Any:
    pool = SimpleNamespace(_pool=Processes())
    watch_unaccepted(pool)
    return pool


def job(told: list[str]) -> Any:
    made: Any = ApplyResult(
        {},
        None,
        accept_callback=lambda pid, at: told.append(f"accepted by {pid}"),
        error_callback=lambda info: told.append(str(info.exception)),
    )
    made.correlation_id = "an id"
    return made


def child(exitcode: int, pid: int = 42, **more: Any) -> Any:
    return SimpleNamespace(pid=pid, exitcode=exitcode, **more)


@pytest.mark.parametrize(("exitcode", "told"), [(-9, "signal 9 (SIGKILL)"), (1, "exitcode 1")])
def test_it_is_told_as_a_lost_process_once_and_not_put_back(pool, exitcode, told) -> None:
    heard: list[str] = []
    lost = job(heard)

    pool._pool.on_partial_read(lost, child(exitcode))

    assert heard[0] == "accepted by 42"
    assert told in heard[1]
    assert len(heard) == 2
    assert pool._pool.put_back == []
    assert lost._cache == {}


@pytest.mark.parametrize(
    "gone",
    [
        child(0),
        child(EX_RECYCLE),
        child(-15, _controlled_termination=True),
        child(3, pid=4711),
    ],
)
def test_a_job_whose_child_had_to_leave_anyway_is_put_back_and_not_charged(pool, gone) -> None:
    leaves(4711)
    heard: list[str] = []
    innocent = job(heard)

    pool._pool.on_partial_read(innocent, gone)

    assert (heard, pool._pool.put_back) == ([], [innocent])


def test_a_job_that_waits_is_not_charged_for_a_child_that_it_was_never_written_to(pool) -> None:
    heard: list[str] = []
    waiting = job(heard)
    pool._pool.outbound_buffer.append(waiting)

    pool._pool.on_partial_read(waiting, child(-9))

    assert (heard, pool._pool.put_back) == ([], [waiting])


def test_nothing_is_charged_while_the_pool_stops_or_when_it_was_accepted(pool) -> None:
    heard: list[str] = []
    accepted = job(heard)
    accepted._accepted = True
    pool._pool.on_partial_read(accepted, child(-9))
    pool._pool._state = 1
    stopping = job(heard)
    pool._pool.on_partial_read(stopping, child(-9))

    assert (heard, pool._pool.put_back) == ([], [stopping])


def test_a_pool_of_another_kind_is_left_alone_and_a_watched_one_watched_once(pool) -> None:
    other: Any = SimpleNamespace(_pool=SimpleNamespace())
    watch_unaccepted(other)
    watch_unaccepted(SimpleNamespace())
    watched = pool._pool.on_partial_read
    watch_unaccepted(pool)

    assert vars(other._pool) == {}
    assert pool._pool.on_partial_read is watched


def test_a_failure_of_ours_leaves_celerys_way(pool, monkeypatch) -> None:
    unknown: Any = SimpleNamespace(_accepted=False)

    pool._pool.on_partial_read(unknown, child(-9))

    assert pool._pool.put_back == [unknown]
