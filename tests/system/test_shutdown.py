"""A worker that is told to stop does not acknowledge what it did not finish."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from hardening.testing.errors import ProcessTimeout
from tests.helpers.wait import wait_until

from .stage import CROSSED, Stage


def left(stage: Stage) -> int:
    """Messages that the broker still has, delivered or not."""
    with stage.sender.connection_for_read() as connection:
        channel: Any = connection.default_channel
        waiting = int(channel.queue_declare("celery", passive=True).message_count)
    return waiting + stage.unacked()


@pytest.mark.parametrize(("broker", "pool"), CROSSED)
def test_a_cold_shutdown_leaves_the_running_task_with_the_broker(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        worker = stage.worker(pool=pool)
        result = stage.send("held")
        wait_until(lambda: stage.effects("started"), 20, stage.logs)

        worker.process.send_signal(signal.SIGQUIT)
        try:
            worker.process.wait(timeout=15)
        except ProcessTimeout:  # Celery 5.6 on gevent and RabbitMQ: its handler waits for itself.
            worker.kill("SIGKILL")

        wait_until(lambda: left(stage) == 1, 15, lambda: f"{left(stage)} left; {stage.logs()}")
        # Only if the worker could be told what became of the task would this be another state.
        assert result.state in ("PENDING", "RETRY")
