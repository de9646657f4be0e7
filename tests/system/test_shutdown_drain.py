"""A worker that is told to stop gives back what it did not begin at once, and the rest in time."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis

from hardening.testing.servers import RedisServer
from tests.helpers.wait import wait_until

from .stage import CROSSED, STRAIGHT, Sent, Stage

BROKERS = ["redis", "rabbitmq"]
WITH_GRACE = json.dumps({"SHUTDOWN": {"GRACE": "1 s"}})
WITH_MUCH_GRACE = json.dumps({"SHUTDOWN": {"GRACE": "60 s"}})
UNSTARTED = "not begun, given back"
CUT = "cut and given back"


def waiting(stage: Stage) -> int:
    """Messages that no worker has."""
    if stage.broker_url.startswith("redis"):
        with redis.Redis.from_url(stage.broker_url) as client:
            return int(client.llen("celery"))
    with stage.sender.connection_for_read() as connection:
        channel: Any = connection.default_channel
        return int(channel.queue_declare("celery", passive=True).message_count)


def counted(stage: Stage, *, waiting_: int, unacked: int, timeout: float = 15) -> None:
    """Wait until the broker has so many messages that wait, and so many that a worker has."""

    def seen() -> tuple[int, int]:
        return waiting(stage), stage.unacked()

    wait_until(lambda: seen() == (waiting_, unacked), timeout, lambda: f"{seen()}; {stage.logs()}")


def starts(stage: Stage, sent: Sent) -> list[str]:
    """The retries that each start of a task counted."""
    return [line.split()[2] for line in stage.effects(f"start {sent.id} ")]


def ends(stage: Stage, sent: Sent) -> int:
    return len(stage.effects(f"end {sent.id}"))


def started(stage: Stage, sent: Sent, times: int = 1) -> None:
    wait_until(lambda: len(starts(stage, sent)) >= times, 30, stage.logs)


def told(stage: Stage, text: str, sent: Sent) -> bool:
    """Whether one line of the log says so of the task."""
    return any(
        text in line and sent.id in line for worker in stage.workers for line in worker.logs().splitlines()
    )


def stopped(worker: Any, timeout: float = 20) -> int:
    """Wait until the worker has ended by itself; its exit status."""
    return int(worker.process.wait(timeout=timeout))


@pytest.mark.parametrize(("broker", "pool"), [*STRAIGHT, ("redis", "threads")])
def test_what_has_not_begun_goes_back_at_once_and_runs_elsewhere_while_the_rest_runs_on(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(pool=pool, concurrency=2, extra_args=("-n", "first@%h"))
        running = stage.send("stoppable")
        started(stage, running)
        later = stage.send("work_for", 0, countdown=6)
        counted(stage, waiting_=0, unacked=2)

        worker.process.send_signal(signal.SIGTERM)
        counted(stage, waiting_=1, unacked=1)
        wait_until(lambda: told(stage, UNSTARTED, later), 10, stage.logs)  # It says so once it has gone back.

        fetched_no_more = stage.send("work_for", 0)
        stage.worker(pool="threads", concurrency=2, extra_args=("-n", "second@%h"))
        stage.state_of(later, "SUCCESS")
        stage.state_of(fetched_no_more, "SUCCESS")
        assert worker.process.is_running
        assert starts(stage, later) == starts(stage, fetched_no_more) == ["0"]

        stage.release()
        assert stopped(worker) == 0
        stage.state_of(running, "SUCCESS")
        stage.nothing_unacked()
        assert starts(stage, running) == ["0"]
        assert not told(stage, CUT, running)


@pytest.mark.parametrize(("broker", "pool"), [*CROSSED, ("rabbitmq", "threads"), ("redis", "solo")])
def test_what_runs_at_the_end_of_the_grace_period_goes_back_and_no_attempt_is_counted(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(pool=pool, extra_args=("-n", "first@%h"), TEST_HARDENING=WITH_GRACE)
        cut = stage.send("stoppable")
        started(stage, cut)

        worker.process.send_signal(signal.SIGTERM)
        assert stopped(worker) == 0

        counted(stage, waiting_=1, unacked=0)
        assert told(stage, CUT, cut)
        assert cut.state == "PENDING"
        assert stage.letters() == []

        stage.worker(pool="threads", extra_args=("-n", "second@%h"))
        started(stage, cut, times=2)
        stage.release()
        stage.state_of(cut, "SUCCESS")
        stage.nothing_unacked()
        assert starts(stage, cut) == ["0", "0"]
        assert stage.letters() == []


@pytest.mark.parametrize("pool", ["prefork", "gevent", "threads", "solo"])
def test_a_worker_ends_as_soon_as_nothing_runs_and_does_not_wait_for_its_grace_period(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(pool=pool, TEST_HARDENING=WITH_MUCH_GRACE)
        sent = stage.send("work_for", 2)
        started(stage, sent)

        worker.process.send_signal(signal.SIGTERM)

        assert stopped(worker) == 0
        assert sent.state == "SUCCESS"
        assert (waiting(stage), stage.unacked()) == (0, 0)
        assert ends(stage, sent) == 1


@pytest.mark.parametrize("pool", ["prefork", "gevent", "threads"])
def test_an_interrupt_drains_as_well_and_ends_with_celerys_exit_status(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(pool=pool)
        sent = stage.send("stoppable")
        started(stage, sent)

        worker.process.send_signal(signal.SIGINT)
        worker.wait_for_log("Hitting Ctrl+C again")
        assert worker.process.is_running
        stage.release()

        assert stopped(worker) == 1
        stage.state_of(sent, "SUCCESS")
        assert (waiting(stage), stage.unacked()) == (0, 0)


def test_what_was_acknowledged_early_and_is_cut_is_named_as_lost(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(TEST_HARDENING=WITH_GRACE)
        sent = stage.send("early_and_long")
        started(stage, sent)

        worker.process.send_signal(signal.SIGTERM)

        assert stopped(worker) == 0
        assert told(stage, "cut, and lost", sent)
        assert (waiting(stage), stage.unacked()) == (0, 0)


def test_a_greenlet_that_does_not_end_when_it_is_cut_is_left_behind(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(pool="gevent", TEST_HARDENING=WITH_GRACE)
        sent = stage.send("stubborn_greenlet")
        started(stage, sent)

        worker.process.send_signal(signal.SIGTERM)

        assert stopped(worker) == 0
        assert stage.effects(f"unimpressed {sent.id}")
        counted(stage, waiting_=1, unacked=0)
        assert told(stage, CUT, sent)


@pytest.mark.parametrize("pool", ["gevent", "solo"])
def test_a_task_that_keeps_the_loop_from_draining_does_not_outlast_the_grace_period(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        worker = stage.worker(pool=pool, TEST_HARDENING=WITH_GRACE)
        sent = stage.send("compute", 60)
        wait_until(lambda: stage.effects("start"), 30, stage.logs)

        worker.process.send_signal(signal.SIGTERM)

        assert stopped(worker) == 0
        counted(stage, waiting_=1, unacked=0)
        assert sent.state == "PENDING"


@pytest.mark.parametrize("pool", ["prefork", "gevent", "threads"])
def test_the_grace_period_ends_although_the_broker_is_down(
    new_stage: Callable[..., Any], make_redis: Callable[..., RedisServer], pool: str
) -> None:
    broker = make_redis()
    with new_stage("redis", own_redis=broker) as stage:
        worker = stage.worker(pool=pool, TEST_HARDENING=WITH_GRACE)
        sent = stage.send("stoppable")
        started(stage, sent)
        broker.stop()
        worker.wait_for_log("Connection to broker lost")

        worker.process.send_signal(signal.SIGTERM)

        stopped(worker, timeout=30)
        assert ends(stage, sent) == 0


def test_a_message_that_waits_for_a_free_greenlet_goes_back_to_its_place_in_the_queue(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(pool="gevent", concurrency=1, extra_args=("-n", "first@%h"))
        running = stage.send("stoppable")
        started(stage, running)
        second = stage.send("work_for", 0)
        counted(stage, waiting_=0, unacked=2)  # The worker's loop waits with it for the greenlet to end.
        third = stage.send("work_for", 0)

        worker.process.send_signal(signal.SIGTERM)
        counted(stage, waiting_=2, unacked=1)

        stage.worker(pool="solo", extra_args=("-n", "second@%h"))
        stage.state_of(third, "SUCCESS")
        assert [line.split()[1] for line in stage.effects("start ")] == [running.id, second.id, third.id]

        stage.release()
        assert stopped(worker) == 0
        stage.state_of(running, "SUCCESS")
        stage.nothing_unacked()
        assert starts(stage, second) == ["0"]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_message_that_waits_for_its_rate_goes_back_at_once(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(pool=pool, concurrency=3, extra_args=("-n", "first@%h"))
        running = stage.send("stoppable")
        started(stage, running)
        limited = [stage.send("hourly") for _ in range(2)]
        wait_until(lambda: stage.effects("start hourly"), 20, stage.logs)
        counted(stage, waiting_=0, unacked=2)

        worker.process.send_signal(signal.SIGTERM)
        counted(stage, waiting_=1, unacked=1)

        stage.release()
        assert stopped(worker) == 0
        assert (waiting(stage), stage.unacked()) == (1, 0)
        assert sorted(each.state for each in limited) == ["PENDING", "SUCCESS"]


@pytest.mark.parametrize("broker", BROKERS)
def test_a_worker_that_is_killed_while_it_drains_loses_nothing(
    new_stage: Callable[..., Any], broker: str
) -> None:
    lease = {"SECONDS": "3 s", "RENEW_EVERY": "1 s"}
    hardening = json.dumps({"SHUTDOWN": {"GRACE": "60 s"}, "LEASE": lease})
    with new_stage(broker) as stage:
        worker = stage.worker(concurrency=2, extra_args=("-n", "first@%h"), TEST_HARDENING=hardening)
        running = stage.send("stoppable")
        started(stage, running)
        later = stage.send("work_for", 0, countdown=6)
        counted(stage, waiting_=0, unacked=2)

        worker.process.send_signal(signal.SIGTERM)
        counted(stage, waiting_=1, unacked=1)
        worker.kill("SIGKILL")

        stage.worker(pool="threads", concurrency=2, extra_args=("-n", "second@%h"), TEST_HARDENING=hardening)
        started(stage, running, times=2)
        stage.release()
        stage.state_of(running, "SUCCESS")
        stage.state_of(later, "SUCCESS")
        stage.nothing_unacked()
        assert starts(stage, running) == ["0", "0"]
        assert starts(stage, later) == ["0"]
        assert stage.letters() == []
