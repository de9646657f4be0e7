"""On gevent no signal that stops a worker loses a message, and each one stops it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from .stage import Sent, Stage
from .test_shutdown_drain import BROKERS, counted, ends, started, starts, stopped

RUNNING = 3


def running(stage: Stage) -> list[Sent]:
    """Tasks that a worker has begun and that end only with it."""
    sent = [stage.send("stoppable") for _ in range(RUNNING)]
    for each in sent:
        started(stage, each)
    return sent


def nothing_lost(stage: Stage, sent: list[Sent]) -> None:
    """All are back, none was acknowledged or told to have ended; and another worker ends them."""
    counted(stage, waiting_=len(sent), unacked=0)
    assert {each.state for each in sent} == {"PENDING"}
    assert stage.letters() == []
    stage.worker(pool="threads", concurrency=len(sent), extra_args=("-n", "second@%h"))
    for each in sent:
        started(stage, each, times=2)
    stage.release()
    for each in sent:
        stage.state_of(each, "SUCCESS")
        assert starts(stage, each) == ["0", "0"]


@pytest.mark.parametrize("broker", BROKERS)
def test_sigquit_gives_everything_back_and_ends_the_worker(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(pool="gevent", concurrency=RUNNING, extra_args=("-n", "first@%h"))
        sent = running(stage)

        worker.process.send_signal(signal.SIGQUIT)

        assert stopped(worker) == 1
        nothing_lost(stage, sent)
        assert "BlockingSwitchOutError" not in worker.logs()


@pytest.mark.parametrize("broker", BROKERS)
def test_a_second_interrupt_gives_everything_back_and_ends_the_worker(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(pool="gevent", concurrency=RUNNING, extra_args=("-n", "first@%h"))
        sent = running(stage)

        worker.process.send_signal(signal.SIGINT)
        worker.wait_for_log("Warm shutdown")
        assert worker.process.is_running
        worker.process.send_signal(signal.SIGINT)

        assert stopped(worker) == 1
        nothing_lost(stage, sent)


def test_sigterm_that_means_sigquit_does_the_same(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage:
        worker = stage.worker(
            pool="gevent", concurrency=RUNNING, extra_args=("-n", "first@%h"), REMAP_SIGTERM="SIGQUIT"
        )
        sent = running(stage)

        worker.process.send_signal(signal.SIGTERM)

        assert stopped(worker) == 1
        nothing_lost(stage, sent)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_soft_shutdown_lets_tasks_end_in_its_time_and_gives_the_rest_back(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(
            pool="gevent",
            concurrency=RUNNING + 1,
            extra_args=("-n", "first@%h"),
            TEST_CELERY=json.dumps({"CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT": 4}),
        )
        sent = running(stage)
        short = stage.send("work_for", 1)
        started(stage, short)

        worker.process.send_signal(signal.SIGQUIT)

        assert stopped(worker) == 1
        assert short.state == "SUCCESS"
        assert ends(stage, short) == 1
        nothing_lost(stage, sent)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_cold_shutdown_on_prefork_gives_back_all_four(new_stage: Callable[..., Any], broker: str) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(concurrency=2, extra_args=("-n", "first@%h"))
        sent = [stage.send("stoppable") for _ in range(4)]
        for each in sent[:2]:
            started(stage, each)

        worker.process.send_signal(signal.SIGQUIT)

        stopped(worker)
        counted(stage, waiting_=4, unacked=0)
        assert stage.letters() == []
