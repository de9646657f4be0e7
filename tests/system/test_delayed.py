"""A task that is due later waits in a store: nothing of it is in a worker, and it runs once, in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from hardening.delayed.stores.database import DatabaseDelayedStore
from hardening.delayed.stores.redis import RedisDelayedStore
from hardening.testing.servers import RedisServer
from tests.helpers.wait import wait_until

from .stage import ALIAS, STRAIGHT, Sent, Stage
from .test_retry_unpublished import left, refusing

HORIZON: dict[str, Any] = {"TEST_HARDENING": json.dumps({"DELAYED": {"HORIZON": "2 s"}})}
LATE_SECONDS = 2.5
"""How late a run may be on a machine that is busy with other tests."""

EVERYWHERE = [*STRAIGHT, ("rabbitmq", "threads"), ("redis", "solo")]


def starts(stage: Stage, name: str = "backing_off") -> list[tuple[str, float]]:
    """Id and time of each start of a task of retrying.py."""
    lines = [line.split() for line in stage.effects(f"{name} ")]
    return [(line[1], float(line[3])) for line in lines]


def parked(stage: Stage, count: int, timeout: float = 20) -> None:
    """Wait until the store has so many. It is asked here: by a command it would be a process each time."""
    on_redis = stage.broker_url.startswith("redis")
    store = RedisDelayedStore(stage.sender) if on_redis else DatabaseDelayedStore(ALIAS)
    wait_until(lambda: store.count() == count, timeout, stage.logs)
    store.close()


def counted(stage: Stage) -> int:
    return int(stage.manage("hardening_delayed", "count", **HORIZON).stdout)


def at(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def ran_at(stage: Stage, sent: Sent, due: datetime) -> None:
    """It started once, at the time or soon after it."""
    [(_, when)] = [start for start in starts(stage, "unhurried") if start[0] == sent.id]
    assert 0 <= when - due.timestamp() < LATE_SECONDS, when - due.timestamp()


@pytest.mark.parametrize(("broker", "pool"), EVERYWHERE)
def test_a_task_of_a_foreign_producer_is_parked_and_runs_once_at_its_time(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(pool=pool, **HORIZON)
        due = at(8)
        far, near = stage.send("unhurried", eta=due), stage.send("unhurried", countdown=1)
        parked(stage, 1)
        stage.nothing_unacked()
        assert far.state == "PENDING"

        stage.state_of(far, "SUCCESS")
        stage.state_of(near, "SUCCESS")
        stage.nothing_unacked()
        ran_at(stage, far, due)
        assert len(starts(stage, "unhurried")) == 2
        assert counted(stage) == 0


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_what_is_parked_outlives_every_worker(new_stage: Callable[..., Any], broker: str) -> None:
    with new_stage(broker) as stage:
        workers = [stage.worker(**HORIZON) for _ in range(2)]
        due = at(9)
        sent = [stage.send("unhurried", eta=due) for _ in range(3)]
        parked(stage, 3)
        for worker in workers:
            worker.kill("SIGKILL")
        assert starts(stage, "unhurried") == []

        for _ in range(2):
            stage.worker(**HORIZON)
        for each in sent:
            stage.state_of(each, "SUCCESS")
        stage.nothing_unacked()
        assert len(starts(stage, "unhurried")) == 3


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_tasks_that_are_due_at_the_same_time_start_in_the_order_in_which_they_were_sent(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(concurrency=1, **HORIZON)
        due = at(9)
        sent = [stage.send("unhurried", eta=due) for _ in range(40)]
        parked(stage, 40)
        stage.state_of(sent[-1], "SUCCESS")
        wait_until(lambda: len(starts(stage, "unhurried")) == 40)

        assert [task_id for task_id, _ in starts(stage, "unhurried")] == [each.id for each in sent]


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_retry_keeps_its_count_over_a_long_wait(new_stage: Callable[..., Any], broker: str) -> None:
    with new_stage(broker) as stage:
        stage.worker(**HORIZON)
        sent = stage.send("later", 6)
        parked(stage, 1)
        stage.state_of(sent, "SUCCESS")

        lines = [line.split() for line in stage.effects("later ")]
        assert [line[2] for line in lines] == ["0", "1"]
        assert 5.8 < float(lines[1][3]) - float(lines[0][3]) < 6 * 1.1 + LATE_SECONDS


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_cancelled_task_never_runs_and_its_result_says_so(
    new_stage: Callable[..., Any], broker: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(**HORIZON)
        gone, kept = stage.send("unhurried", countdown=8), stage.send("unhurried", countdown=8)
        parked(stage, 2)

        answer = stage.manage("hardening_delayed", "cancel", gone.id, "--json", **HORIZON)

        assert [each["task_id"] for each in json.loads(answer.stdout)["cancelled"]] == [gone.id]
        assert gone.state == "REVOKED"
        stage.state_of(kept, "SUCCESS")
        stage.nothing_unacked()
        assert [task_id for task_id, _ in starts(stage, "unhurried")] == [kept.id]
        again = stage.manage("hardening_delayed", "cancel", kept.id, check=False, **HORIZON)
        assert again.returncode == 1
        assert kept.id in again.stderr


@pytest.mark.parametrize(
    ("broker", "meanwhile"),
    [("redis", "parked"), ("redis", "released"), ("rabbitmq", "released"), ("rabbitmq", "cancelled")],
)
def test_a_worker_that_dies_between_parking_and_acknowledging_costs_nothing(
    new_stage: Callable[..., Any], broker: str, meanwhile: str
) -> None:
    """Its copy comes back while the task is parked, after it was released, or after it was cancelled."""
    with new_stage(broker) as stage:
        dying = stage.worker(**dying_when_parked(broker))
        sent = stage.send("unhurried", eta=at(5 if meanwhile == "released" else 16))
        wait_until(lambda: dying.container.status == "exited", 20, stage.logs)
        assert counted(stage) == 1
        if meanwhile == "released":
            stage.worker(extra_args=("-Q", "another"), **HORIZON)
            parked(stage, 0)
        if meanwhile == "cancelled":
            stage.manage("hardening_delayed", "cancel", sent.id, **HORIZON)

        stage.worker(**HORIZON)

        if meanwhile != "parked":
            wait_until(lambda: stage.said("an old copy of task"), 60, stage.logs)
        if meanwhile != "cancelled":
            stage.state_of(sent, "SUCCESS", timeout=60)
        stage.nothing_unacked()
        wait_until(lambda: left(stage) == 0, 20, stage.logs)
        assert len(starts(stage, "unhurried")) == (meanwhile != "cancelled")
        assert sent.state == ("REVOKED" if meanwhile == "cancelled" else "SUCCESS")


def dying_when_parked(broker: str) -> dict[str, str]:
    """Settings of a worker that is killed between parking a message and acknowledging it."""
    name = "OnRedis" if broker == "redis" else "OnDatabase"
    store = {"BACKEND": f"tests.system.project.dying.{name}"}
    return {"TEST_HARDENING": json.dumps({"DELAYED": {"HORIZON": "2 s", "STORE": store}})}


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_broker_that_takes_nothing_when_a_task_is_due_gets_it_later(
    new_stage: Callable[..., Any],
    make_redis: Callable[..., RedisServer],
    request: pytest.FixtureRequest,
    broker: str,
) -> None:
    with new_stage(broker, own_redis=make_redis()) as stage:
        stage.worker(**HORIZON)
        sent = stage.send("unhurried", countdown=5)
        parked(stage, 1)
        with refusing(stage, request):
            time.sleep(6)  # It is due meanwhile.
            assert starts(stage, "unhurried") == []

        stage.state_of(sent, "SUCCESS", timeout=40)
        assert len(starts(stage, "unhurried")) == 1


def test_without_its_store_a_task_waits_in_the_worker_as_before(new_stage: Callable[..., Any]) -> None:
    broken = {
        "BACKEND": "hardening.delayed.stores.database.DatabaseDelayedStore",
        "OPTIONS": {"database": "no_such_database"},
    }
    settings = {"TEST_HARDENING": json.dumps({"DELAYED": {"HORIZON": "2 s", "STORE": broken}})}
    with new_stage("redis") as stage:
        stage.worker(**settings)
        sent = stage.send("unhurried", countdown=5)
        wait_until(lambda: stage.unacked() == 1, 20, stage.logs)
        wait_until(lambda: stage.said("delayed tasks wait in the worker's memory"), 20, stage.logs)

        stage.state_of(sent, "SUCCESS")
        stage.nothing_unacked()
        assert len(starts(stage, "unhurried")) == 1
        assert stage.said("delayed tasks wait in the worker's memory") == 1


def test_delayed_tasks_of_a_redis_broker_may_be_kept_in_the_database(new_stage: Callable[..., Any]) -> None:
    store = {"BACKEND": "hardening.delayed.stores.database.DatabaseDelayedStore"}
    settings = {"TEST_HARDENING": json.dumps({"DELAYED": {"HORIZON": "2 s", "STORE": store}})}
    with new_stage("redis") as stage:
        stage.worker(**settings)
        due = at(6)
        sent = stage.send("unhurried", eta=due)
        wait_until(lambda: stage.said("is parked until"), 20, stage.logs)
        stage.nothing_unacked()

        stage.state_of(sent, "SUCCESS")
        ran_at(stage, sent, due)


def test_the_prefix_and_the_priority_of_a_message_lead_it_back_to_its_list(
    new_stage: Callable[..., Any],
) -> None:
    options = {"global_keyprefix": "acme:"}
    celery = {"TEST_CELERY": json.dumps({"CELERY_BROKER_TRANSPORT_OPTIONS": options}), **HORIZON}
    with new_stage("redis") as stage:
        stage.sender.conf.broker_transport_options = options
        worker = stage.worker(**celery)
        sent = stage.send("unhurried", countdown=6, priority=6)
        with redis.Redis.from_url(stage.broker_url) as client:
            wait_until(lambda: client.zcard("acme:hardening:delayed:due") == 1, 20, stage.logs)
            worker.kill("SIGKILL")
            stage.worker(extra_args=("-Q", "another"), **celery)

            wait_until(lambda: client.llen("acme:celery\x06\x166") == 1, 30, stage.logs)
        stage.worker(**celery)
        stage.state_of(sent, "SUCCESS")


@pytest.mark.parametrize("exchange", ["topic", "direct"])
def test_rabbitmqs_own_delay_is_used_where_it_works_and_the_rest_is_parked(
    new_stage: Callable[..., Any], exchange: str
) -> None:
    conf = {
        "task_default_queue_type": "quorum",
        "task_default_exchange": exchange,
        "task_default_exchange_type": exchange,
        "task_default_queue": "celery",
        "task_default_routing_key": "celery",
    }
    with new_stage("rabbitmq") as stage:
        settings = json.dumps({f"CELERY_{name.upper()}": value for name, value in conf.items()})
        stage.worker(TEST_CELERY=settings, **HORIZON)
        stage.sender.conf.update(conf)
        due = at(9)
        sent = stage.send("unhurried", eta=due)
        # Celery sends it on a way around a direct exchange only: there it is at the worker at once.
        if exchange == "direct":
            parked(stage, 1)
        else:
            time.sleep(3)
            assert counted(stage) == 0
        stage.state_of(sent, "SUCCESS")
        stage.nothing_unacked()
        ran_at(stage, sent, due)
        assert len(starts(stage, "unhurried")) == 1
