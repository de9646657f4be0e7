"""A store that is down never costs a letter, and a letter that is kept nowhere never costs its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from celery import signature

from hardening.testing.servers import PostgresServer, ServerMissing
from tests.conftest import absent
from tests.helpers.wait import wait_until

from .stage import STRAIGHT

POOLS = ("prefork", "gevent")
DEAD_LETTER_QUEUE = "celery_hardening.dead_letters"
DEAD = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_with_a_dead_result_backend_every_failure_still_leaves_its_letter(
    new_stage: Callable[..., Any], pool: str, broker: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(pool=pool, concurrency=4, CELERY_RESULT_BACKEND=DEAD)
        permanent, bug, slow, done = (
            stage.send("fail_for_good"),
            stage.send("bug", 1),
            stage.send("too_long"),
            stage.send("succeed", 1),
        )

        assert stage.letter_of(permanent).reason == "permanent"
        assert stage.letter_of(bug).error_class == "TypeError"
        assert stage.letter_of(slow, 60).reason == "time_limit"
        # The body ran to its end, and nobody can know its result: visible, not silent.
        assert stage.letter_of(done, 60).reason == "result_not_stored"
        stage.nothing_unacked(40)


def test_with_a_dead_result_backend_a_retry_goes_on_and_is_not_taken_for_a_failure(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage:
        stage.worker(pool="prefork", CELERY_RESULT_BACKEND=DEAD)
        result = stage.send("exhaust")

        letter = stage.letter_of(result, 60)
        assert letter.reason == "retries_exhausted"
        assert len(stage.attempts(letter)) == 3


@pytest.fixture
def own_postgres() -> Any:
    """A PostgreSQL that the test may stop."""
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        absent(str(missing))
    with server:
        yield server


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_letters_of_a_database_outage_wait_on_the_broker_and_come_in_when_it_is_back(
    new_stage: Callable[..., Any], own_postgres: PostgresServer, broker: str
) -> None:
    with new_stage(broker, database_url=own_postgres.url) as stage:
        stage.manage("migrate", "--verbosity", "0")
        stage.worker(pool="prefork", concurrency=1)
        before = stage.send("bug", "before")
        stage.letter_of(before)
        own_postgres.stop()
        sent = [stage.send("bug", number) for number in range(12)]
        for result in sent:
            stage.state_of(result, "FAILURE", 60)
        stage.nothing_unacked()

        own_postgres.start()

        wait_until(lambda: len(stage.letters()) == 13, 40, stage.logs)
        letters = stage.letters()
        assert [letter.task_id for letter in letters] == [before.id, *(result.id for result in sent)]
        assert {letter.captures for letter in letters} == {1}


@pytest.mark.parametrize("pool", POOLS)
def test_a_letter_that_no_store_takes_keeps_its_message_unacknowledged_until_one_does(
    new_stage: Callable[..., Any], pool: str
) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:1/none"
    with new_stage("redis") as stage, redis.Redis.from_url(stage.broker_url) as client:
        stage.worker(pool=pool, concurrency=4, TEST_DATABASE_URL=unreachable)
        # A key of another type in the queue's place: the broker refuses the letter, and only the letter.
        client.set(DEAD_LETTER_QUEUE, "in the way")
        failed = stage.send("bug", 1, link_error=signature("errback", app=stage.sender))
        slow = stage.send("too_long")
        wait_until(lambda: stage.logs().count("stays unacknowledged") >= 2, 30, stage.logs)
        # Nothing was reported, since nothing is settled: the work counts as pending.
        assert (failed.state, slow.state) == ("PENDING", "PENDING")
        assert stage.unacked() == 2
        other = stage.send("succeed", 1)
        stage.state_of(other, "SUCCESS")

        client.delete(DEAD_LETTER_QUEUE)

        stage.state_of(failed, "FAILURE", 40)
        stage.state_of(slow, "FAILURE", 40)
        stage.nothing_unacked()
        assert client.llen(DEAD_LETTER_QUEUE) == 2
        wait_until(lambda: stage.effects(f"errback {failed.id}"), 20, stage.logs)


def test_a_worker_killed_while_it_holds_a_letter_loses_nothing(new_stage: Callable[..., Any]) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:1/none"
    with new_stage("redis") as stage, redis.Redis.from_url(stage.broker_url) as client:
        client.set(DEAD_LETTER_QUEUE, "in the way")
        worker = stage.worker(TEST_DATABASE_URL=unreachable)
        result = stage.send("bug", 1)
        wait_until(lambda: "stays unacknowledged" in stage.logs(), 30, stage.logs)

        worker.kill("SIGKILL")

        assert stage.unacked() == 1
        assert result.state == "PENDING"
