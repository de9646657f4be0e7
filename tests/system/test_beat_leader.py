"""Any number of `celery beat` processes: one message for each due time, whoever of them dies or is paused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from celery import beat

from hardening.testing.servers import PostgresServer, RedisServer
from tests.helpers.wait import wait_until

from .beats import QUEUE, Beats
from .stage import PROJECT


@pytest.fixture
def new_beats(new_stage: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def open_beats(every: float = 0.5, leader: dict[str, Any] | None = None, **stage: Any) -> Iterator[Beats]:
        settings = {
            "CELERY_BEAT_SCHEDULE": {
                "often": {"task": "not here", "schedule": every, "options": {"queue": QUEUE}}
            },
            "BEAT_LEADER": leader or {},
            "CELERY_BEAT_ENABLE_REMOTE_CONTROL": True,
        }
        with new_stage("redis", **stage) as opened, ExitStack() as stack:
            yield Beats(opened, int(every * 1000), settings, stack)

    return open_beats


def test_three_beats_send_each_due_time_once_over_a_kill_a_pause_and_a_stop(new_beats) -> None:
    with new_beats(leader={"SOURCE": "code"}) as beats:
        for _ in range(3):
            beats.start()
        beats.wait_for(4)

        killed = beats.sender()
        killed.kill()
        assert beats.next_of_another(killed.pid, timeout=15) <= 8

        paused = beats.sender()
        paused.pause()
        assert beats.next_of_another(paused.pid, timeout=15) <= 8
        last = beats.sender()
        paused.resume()
        beats.wait_for(len(beats.sent()) + 4)
        assert beats.sender() is last

        last.stop()
        assert last.returncode == 0, last.log_tail()
        assert beats.next_of_another(last.pid, timeout=15) <= 1.5  # The next due time may be 0.5 s away.
        beats.assert_one_for_each_due_time()


def test_beats_on_the_database_send_each_due_time_once_over_a_kill_and_an_outage_of_the_broker(
    new_beats,
) -> None:
    on_database = {
        "LOCK": {"BACKEND": "beat_leader.locks.database.DatabaseLock"},
        "STORE": {"BACKEND": "beat_leader.stores.database"},
    }
    with (
        RedisServer(append_only=True) as broker,
        PostgresServer() as database,
        new_beats(leader=on_database, own_redis=broker, database_url=database.url) as beats,
    ):
        beats.stage.manage("migrate", "--verbosity", "0")
        for _ in range(2):
            beats.start()
        beats.wait_for(3)
        if hasattr(beat, "BeatPidbox"):  # Of Celery 5.7: leader and standby answer.
            control = beats.stage.sender.control
            wait_until(lambda: len(control.ping(timeout=1)) == 2, 20, beats.logs)

        killed = beats.sender()
        killed.kill()
        assert beats.next_of_another(killed.pid, timeout=15) <= 8

        broker.kill()
        time.sleep(3)
        broker.start()
        beats.wait_for(len(beats.sent()) + 8)
        beats.assert_one_for_each_due_time(repeated=True)


def test_a_beat_that_is_embedded_in_a_worker_leads(new_beats) -> None:
    with new_beats(leader={"SOURCE": "code"}) as beats:
        stage = beats.stage
        beats.settings["CELERY_BEAT_SCHEDULE"]["often"] = {"task": "harmless", "schedule": 0.5}
        stage.worker(
            concurrency=1,
            extra_args=("-I", f"{PROJECT}.poisonous", "-B", "-s", str(stage.directory / "unused")),
            TEST_CELERY=json.dumps(beats.settings),
        )
        wait_until(lambda: len(stage.effects("start")) >= 3, 20, stage.logs)
        runs = stage.effects("start")

        assert len(set(runs)) == len(runs)
        assert not (stage.directory / "unused").exists()


def test_a_beat_with_another_scheduler_does_not_start(new_beats) -> None:
    with new_beats() as beats:
        another = beats.start("-S", "django")

        assert another.wait() == 78
        assert "CH042" in another.log_text()
        assert "option -S/--scheduler" in another.log_text()
        assert beats.sent() == []
