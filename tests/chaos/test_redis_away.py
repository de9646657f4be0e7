"""A minute without Redis: five leases long. The workers live, each task runs once, nothing is left over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hardening.testing.servers import RedisServer
from tests.system.conftest import database_template, new_stage, on_redis
from tests.system.test_leases import ended, runs, started, worker

__all__ = ["database_template", "new_stage", "on_redis"]  # Fixtures.

AWAY_SECONDS = 60

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def broker() -> Iterator[RedisServer]:
    with RedisServer(append_only=True) as server:
        yield server


@pytest.mark.parametrize("pool", ["prefork", "gevent", "threads", "solo"])
def test_a_minute_without_redis_doubles_and_loses_nothing(
    new_stage: Callable[..., Any], broker: RedisServer, pool: str
) -> None:
    with RedisServer() as results, new_stage("redis", own_redis=broker) as stage:
        first = worker(stage, pool=pool, TEST_HARDENING="{}", CELERY_RESULT_BACKEND=results.url)
        second = worker(stage, name="second", TEST_HARDENING="{}", CELERY_RESULT_BACKEND=results.url)
        sent = [stage.send("outlast", seconds) for seconds in (5, 5, 20, 80, 1, 1)]
        started(stage, sent[0])

        broker.kill()
        time.sleep(AWAY_SECONDS)
        broker.start()

        for each in sent:
            ended(stage, each, timeout=120)
        stage.nothing_unacked(timeout=60)
        assert [runs(stage, each) for each in sent] == [(1, 1)] * len(sent)
        assert first.process.is_running
        assert second.process.is_running
