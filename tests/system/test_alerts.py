"""Workers raise an incident within half a minute, once for all; no channel keeps them from their work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.alerting import Postbox
from tests.helpers.failing_http import FailingHttp
from tests.helpers.wait import wait_until

WEBHOOK = "hardening.alerts.channels.webhook.WebhookChannel"
WITHIN_SECONDS = 30.0
CONDITION = "hardening.outage"


def hardening(*urls: str, **options: Any) -> str:
    channels = [
        {"BACKEND": WEBHOOK, "OPTIONS": {"url": url, **options}, "NAME": f"hook-{number}"}
        for number, url in enumerate(urls)
    ]
    return json.dumps({"ALERTS": {"CHANNELS": channels}})


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_workers_with_a_hanging_channel_tell_the_other_one_once_go_on_and_stop_in_time(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("redis") as stage, FailingHttp() as hanging, Postbox() as box:
        # It would hang for as long as the test lasts: the time-out is not what saves the worker.
        settings = hardening(hanging.answering(slow=True), box.url, timeout=600)
        # A child for each task: they are forked while the thread of the channel hangs.
        forking = ("--max-tasks-per-child", "1") if pool == "prefork" else ()
        for _ in range(2):
            stage.worker(pool=pool, concurrency=2, wait=False, extra_args=forking, TEST_HARDENING=settings)
        for worker in stage.workers:
            worker.ready()
        stage.send("ask_courier")
        wait_until(lambda: stage.said("dependency courier: opened"), 30, stage.logs)
        opened = time.monotonic()

        wait_until(lambda: box.posted, WITHIN_SECONDS, stage.logs)

        assert time.monotonic() - opened < WITHIN_SECONDS
        assert box.posted[0].notice["condition"] == CONDITION
        assert box.posted[0].notice["state"] == "opened"
        for number in range(10):
            stage.state_of(stage.send("succeed", number), "SUCCESS")
        began = time.monotonic()
        for worker in stage.workers:
            worker.kill("SIGTERM")
        for worker in stage.workers:
            worker.process.wait(timeout=20)
        assert time.monotonic() - began < 20
        assert len(box.posted) == 1


def test_without_a_worker_a_command_goes_on_and_tells_nobody_twice(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("rabbitmq") as stage, Postbox() as box:
        settings = hardening(box.url)
        stage.worker(concurrency=1, TEST_HARDENING=settings)
        stage.send("ask_courier")
        wait_until(lambda: box.posted, 60, stage.logs)
        stage.workers[0].kill()

        done = stage.manage("hardening_alerts", "--once", "--json", TEST_HARDENING=settings)

        said = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["open"]["subject"] for row in said if "open" in row] == ["courier"]
        assert len(box.posted) == 1
