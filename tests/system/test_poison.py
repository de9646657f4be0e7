"""A task that kills its process is started so often and no more, and its neighbours are served meanwhile."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from hardening.testing.servers import RabbitMQServer
from tests.helpers.wait import wait_until

from .stage import CROSSED, STRAIGHT, Sent, Stage

POISON = {"BASE": "0.2 s", "CAP": "1 s"}
LEASE = {"SECONDS": "3 s", "RENEW_EVERY": "1 s"}
HARDENING = json.dumps({"POISON": POISON, "LEASE": LEASE})
EXTRA = ("-I", "tests.system.project.poisonous")


def worker(stage: Stage, name: str = "w", *, pool: str = "prefork", concurrency: int = 2, **env: Any) -> Any:
    extra = (*EXTRA, "-n", f"{name}@%h", *env.pop("extra", ()))
    hardening = env.pop("TEST_HARDENING", HARDENING)
    return stage.worker(pool=pool, concurrency=concurrency, extra_args=extra, TEST_HARDENING=hardening, **env)


def starts(stage: Stage, sent: Sent) -> int:
    return len(stage.effects(f"start {sent.id} "))


def begun(stage: Stage, sent: Sent, times: int) -> bool:
    return starts(stage, sent) == times


OF_A_CHILD = {
    "killed": "SIGKILL",
    "segfault": "SIGSEGV",
    "exit": "exit code 3",
    "import": "SIGKILL",
    "memory": "MemoryError",
    "rlimit": "MemoryError",
}
OF_A_GREENLET = {how: OF_A_CHILD[how] for how in ("memory", "rlimit")}
"""The others end the worker there, or are failures of the body."""


@pytest.mark.parametrize(("broker", "pool"), [*STRAIGHT, ("rabbitmq", "prefork")])
def test_what_kills_its_child_has_three_starts_and_a_letter_and_its_neighbours_none(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    ways = OF_A_CHILD if pool == "prefork" else OF_A_GREENLET
    with new_stage(broker) as stage:
        alive = worker(stage, pool=pool, TEST_CHILD_ROOM="24")
        poison = {how: stage.send("die", how) for how in ways}
        # RabbitMQ takes no message as large as that, unless it is compressed.
        large = stage.send("large", "x" * 40_000_000, compression="gzip") if pool == "prefork" else None
        neighbours = [stage.send("harmless") for _ in range(10)]
        twice = stage.send("die", "memory", 2)
        once = stage.send("die_at_once") if pool == "prefork" else None
        hangs = stage.send("hangs") if pool == "prefork" else None

        for sent in neighbours:
            stage.state_of(sent, "SUCCESS")
        letters = {how: stage.letter_of(sent, 60) for how, sent in poison.items()}
        stage.state_of(twice, "SUCCESS")

        for how, error in ways.items():
            attempts = stage.attempts(letters[how])
            assert letters[how].reason == "poison"
            assert [each.error_class for each in attempts] == [error] * 3
            assert [each.number for each in attempts] == [1, 2, 3]
            assert all("process" in each.message and "w@" in each.worker for each in attempts)
            stage.state_of(poison[how], "FAILURE")
            assert starts(stage, poison[how]) == 3
            assert len(stage.effects(f"task_died {poison[how].id} ")) == 3
            # Told last of all.
            wait_until(partial(stage.effects, f"task_quarantined {poison[how].id} "), 20, stage.logs)
        assert starts(stage, twice) == 3
        assert all(starts(stage, sent) == 1 for sent in neighbours)
        for sent in filter(None, (once, hangs)):  # It ends at its first start.
            assert len(stage.attempts(stage.letter_of(sent))) == starts(stage, sent) == 1
        if hangs is not None:
            assert stage.letter_of(hangs).reason == "time_limit"
        if large is not None:  # No child can even read it.
            letter = stage.letter_of(large, 60)
            stage.state_of(large, "FAILURE")
            assert (letter.reason, len(stage.attempts(letter)), starts(stage, large)) == ("poison", 3, 0)
            assert stage.said("died while it was reading task") == 3
        assert len(stage.letters()) == len(ways) + len([*filter(None, (once, hangs, large))])
        stage.nothing_unacked()
        stage.state_of(stage.send("harmless"), "SUCCESS")
        assert alive.process.is_running


@pytest.mark.parametrize(("broker", "pool"), CROSSED)
def test_what_kills_its_whole_worker_has_three_starts_and_a_letter(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        first = worker(stage, "first", pool=pool, concurrency=1)
        poison = stage.send("die", "worker")
        neighbours = [stage.send("harmless") for _ in range(3)]
        for number in (1, 2, 3):
            wait_until(lambda: not first.process.is_running, 60, stage.logs)
            assert starts(stage, poison) == number
            first.process.restart()

        letter = stage.letter_of(poison, 60)
        for sent in neighbours:
            stage.state_of(sent, "SUCCESS", 60)
        attempts = stage.attempts(letter)
        assert (letter.reason, [each.error_class for each in attempts]) == ("poison", ["worker gone"] * 3)
        assert all("first@" in each.message for each in attempts[1:])
        assert starts(stage, poison) == 3
        stage.state_of(poison, "FAILURE")
        assert len(stage.letters()) == 1
        assert stage.effects(f"orphan_recovered {poison.id} ")
        stage.nothing_unacked()


def cut(stage: Stage, rabbit: RabbitMQServer | None) -> None:
    """The broker closes every connection."""
    if rabbit is not None:
        rabbit.rabbitmqctl("close_all_connections", "--vhost", stage.broker_url.rpartition("/")[2], "cut")
        return
    with redis.Redis.from_url(stage.broker_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_planned_restarts_and_lost_connections_are_no_deaths(
    new_stage: Callable[..., Any], request: pytest.FixtureRequest, broker: str, pool: str
) -> None:
    rabbit = request.getfixturevalue("rabbitmq_server") if broker == "rabbitmq" else None
    hardening = json.dumps({"POISON": POISON, "LEASE": LEASE, "SHUTDOWN": {"GRACE": "0.2 s"}})
    with new_stage(broker) as stage:
        first = worker(stage, "first", pool=pool, TEST_HARDENING=hardening)
        sent = stage.send("waits")  # A single death would end it.
        for number in (1, 2):
            wait_until(partial(begun, stage, sent, number), 60, stage.logs)
            cut(stage, rabbit)
            first.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not first.process.is_running, 60, stage.logs)
            first.process.restart()
        wait_until(partial(begun, stage, sent, 3), 60, stage.logs)
        stage.release()

        stage.state_of(sent, "SUCCESS", 60)
        stage.nothing_unacked()
        assert stage.letters() == []
        assert stage.effects("task_died") == []


@pytest.mark.parametrize(("broker", "pool"), CROSSED)
def test_the_last_try_is_where_there_is_room(new_stage: Callable[..., Any], broker: str, pool: str) -> None:
    with new_stage(broker) as stage:
        first = worker(stage, pool=pool, concurrency=1, wait=False)
        roomy = worker(stage, "roomy", pool=pool, concurrency=1, extra=("-Q", "roomy"))
        first.container.ready()
        sent = stage.send("moved", "killed" if pool == "prefork" else "memory")

        stage.state_of(sent, "SUCCESS", 60)

        where = [line.split(" of ")[1].split("@")[0] for line in stage.effects(f"start {sent.id} ")]
        assert where == ["w", "w", "roomy"]
        stage.nothing_unacked()
        assert stage.letters() == []
        assert roomy.process.is_running


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_without_a_store_tasks_start_and_their_deaths_count_in_this_worker(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    nowhere = {"BACKEND": "hardening.stores.redis.RedisStore", "OPTIONS": {"url": "redis://127.0.0.1:1/0"}}
    hardening = json.dumps({"POISON": POISON, "LEASE": LEASE, "STORE": nowhere})
    with new_stage(broker) as stage:
        worker(stage, pool=pool, concurrency=1, TEST_HARDENING=hardening)
        poison = stage.send("die", "killed" if pool == "prefork" else "memory")
        neighbour = stage.send("harmless")

        assert len(stage.attempts(stage.letter_of(poison, 60))) == 3
        stage.state_of(neighbour, "SUCCESS")
        assert starts(stage, poison) == 3
        assert stage.said("deaths of tasks cannot be counted over all workers") == 1
