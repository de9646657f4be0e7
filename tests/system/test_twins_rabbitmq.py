"""RabbitMQ takes messages back with their channel: what has finished or still runs is not run again."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hardening.store import StateStore
from hardening.stores.database import DatabaseStore
from hardening.testing.servers import RabbitMQServer
from hardening.testing.tcp_proxy import tcp_proxy
from hardening.twins.figure import duplicates_of
from tests.helpers.wait import wait_until

from .stage import ALIAS, Sent, Stage

POOLS = ("prefork", "gevent", "threads")
LOST = "the connection is lost while"
ADOPTED = "came back and is still run by"
NOT_RUN = "is not run again, it succeeded in"
HELD = "is held back, for it is run by"


def vhost_of(stage: Stage) -> str:
    return stage.broker_url.rpartition("/")[2]


def begun(stage: Stage, times: int = 1) -> Sent:
    sent = stage.send("held")
    wait_until(lambda: starts(stage, sent) >= times, 20, stage.logs)
    return sent


def starts(stage: Stage, sent: Sent) -> int:
    return len(stage.effects(f"started held {sent.id}"))


def cut(stage: Stage, rabbit: RabbitMQServer) -> None:
    """The broker closes every connection."""
    rabbit.rabbitmqctl("close_all_connections", "--vhost", vhost_of(stage), "cut by the test")


@contextmanager
def unreachable(rabbit: RabbitMQServer) -> Iterator[None]:
    """The broker takes no new connections."""
    rabbit.rabbitmqctl("suspend_listeners")
    try:
        yield
    finally:
        rabbit.rabbitmqctl("resume_listeners")


def nothing_left(stage: Stage, rabbit: RabbitMQServer) -> None:
    """No message is on the broker, neither ready nor with a worker."""

    def counts() -> tuple[int, ...]:
        columns = ("messages_ready", "messages_unacknowledged", "consumers")
        return rabbit.queue_counts(vhost_of(stage), *columns).get("celery", ())

    def told() -> str:
        return "{} messages ready, {} unacknowledged, {} consumers".format(*(counts() or "???"))

    wait_until(lambda: counts()[:2] == (0, 0), 60, lambda: f"{told()}; {stage.logs()}")


def figure(stage: Stage) -> tuple[int, int]:
    """How often a copy was not run, and how often one succeeded again."""
    store: StateStore = DatabaseStore(ALIAS)
    found = duplicates_of(store)
    store.close()
    return sum(each.not_run for each in found), sum(each.ran_again for each in found)


@pytest.mark.parametrize("pool", POOLS)
def test_what_runs_while_the_connection_breaks_takes_its_message_over_and_runs_once(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        stage.worker(pool=pool)
        sent = begun(stage)
        cut(stage, rabbitmq_server)
        wait_until(lambda: stage.said(ADOPTED) == 1, 30, stage.logs)
        cut(stage, rabbitmq_server)
        wait_until(lambda: stage.said(ADOPTED) == 2, 30, stage.logs)

        stage.release()

        stage.state_of(sent, "SUCCESS")
        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 1
        assert stage.said("Couldn't ack") == 0


@pytest.mark.parametrize("pool", POOLS)
def test_what_finished_while_there_was_no_connection_is_not_run_again(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        stage.worker(pool=pool)
        sent = begun(stage)
        with unreachable(rabbitmq_server):
            cut(stage, rabbitmq_server)
            wait_until(lambda: stage.said(LOST), 40, stage.logs)
            stage.release()
            stage.state_of(sent, "SUCCESS")

        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 1
        # Prefork's parent hears of the end only when it is connected again.
        # Said after the acknowledgement.
        told = lambda: stage.said(NOT_RUN) + (stage.said(ADOPTED) if pool != "gevent" else 0)  # noqa: E731
        wait_until(lambda: told() >= 1, 10, stage.logs)
        assert told() == 1


@pytest.mark.parametrize("pool", POOLS[:2])
def test_a_success_whose_acknowledgement_never_arrived_is_not_run_again_by_anybody(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    with new_stage("rabbitmq") as stage, tcp_proxy(rabbitmq_server.host, rabbitmq_server.port) as proxy:
        behind = stage.broker_url.replace(f":{rabbitmq_server.port}/", f":{proxy.port}/")
        stage.worker(pool=pool, CELERY_BROKER_URL=behind)
        sent = begun(stage)
        proxy.swallows = True
        stage.release()
        stage.state_of(sent, "SUCCESS")
        wait_until(lambda: stage.said("succeeded in"), 20, stage.logs)
        stage.worker(pool=pool)
        proxy.cut()

        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 1
        wait_until(lambda: stage.said(NOT_RUN), 10, stage.logs)
        assert stage.said(NOT_RUN) == 1


@pytest.mark.parametrize("pool", POOLS[:2])
def test_of_two_idle_workers_the_one_that_gets_the_message_leaves_it_to_the_one_that_runs_it(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        for _ in range(2):
            stage.worker(pool=pool)
        sent = begun(stage)
        for times in range(1, 4):
            cut(stage, rabbitmq_server)
            wait_until(lambda times=times: stage.said(LOST) >= times, 20, stage.logs)  # type: ignore[misc]
            wait_until(lambda: stage.unacked() == 1, 20, stage.logs)
        stage.release()

        stage.state_of(sent, "SUCCESS")
        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 1


@pytest.mark.parametrize("pool", POOLS[:2])
def test_another_worker_that_gets_the_message_leaves_it_to_the_one_that_runs_it(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        first = stage.worker(pool=pool)
        sent = begun(stage)
        with unreachable(rabbitmq_server):
            cut(stage, rabbitmq_server)
            wait_until(lambda: stage.said(LOST), 20, stage.logs)
            second = stage.worker(pool=pool, wait=False)
            wait_until(lambda: "Cannot connect" in second.logs(), 30, stage.logs)
        wait_until(lambda: stage.said(HELD) or stage.said(ADOPTED), 60, stage.logs)
        assert starts(stage, sent) == 1

        stage.release()

        stage.state_of(sent, "SUCCESS")
        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 1
        assert first.logs()


def test_a_copy_that_started_before_the_first_was_marked_is_counted_as_a_duplicate(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer
) -> None:
    with new_stage("rabbitmq") as stage:
        first = stage.worker()
        sent = begun(stage)
        # It does not notice that its connection is gone.
        frozen = first.container.process.pid
        os.kill(frozen, signal.SIGSTOP)
        try:
            cut(stage, rabbitmq_server)
            stage.worker()
            wait_until(lambda: starts(stage, sent) == 2, 30, stage.logs)
        finally:
            os.kill(frozen, signal.SIGCONT)
        wait_until(lambda: stage.said(LOST), 30, stage.logs)

        stage.release()

        stage.state_of(sent, "SUCCESS")
        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 2
        wait_until(
            lambda: stage.said("is a duplicate: it succeeded here, and before in") == 1, 20, stage.logs
        )
        wait_until(lambda: figure(stage)[1] == 1, 20, lambda: str(figure(stage)))


def test_a_worker_that_dies_while_it_runs_a_redelivery_leaves_it_to_another(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer
) -> None:
    with new_stage("rabbitmq") as stage:
        first = stage.worker()
        sent = begun(stage)
        cut(stage, rabbitmq_server)
        wait_until(lambda: stage.said(ADOPTED) == 1, 30, stage.logs)
        stage.worker()
        first.kill("SIGKILL")
        stage.release()

        stage.state_of(sent, "SUCCESS", 40)
        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 2


@pytest.mark.parametrize("pool", POOLS[:2])
def test_under_one_cut_after_another_nothing_is_lost_and_next_to_nothing_runs_twice(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    number = 400
    with new_stage("rabbitmq") as stage, tcp_proxy(rabbitmq_server.host, rabbitmq_server.port) as proxy:
        behind = stage.broker_url.replace(f":{rabbitmq_server.port}/", f":{proxy.port}/")
        for _ in range(2):
            stage.worker(
                pool=pool,
                concurrency=4,
                extra_args=("-I", "tests.system.project.napping"),
                CELERY_BROKER_URL=behind,
            )
        for each in range(number):
            stage.send("nap", each, task_id=f"nap{each}")
        for ended in range(0, number, 40):
            wait_until(lambda ended=ended: len(stage.effects("end")) >= ended, 60, stage.logs)  # type: ignore[misc]
            proxy.cut()

        nothing_left(stage, rabbitmq_server)
        runs = Counter(stage.effects("start"))
        assert len(runs) == number, "nothing is lost"
        twice = sum(count - 1 for count in runs.values())
        # What children or greenlets take up just then: see the windows in docs/explanation/twins.md.
        assert twice <= number / 20
        assert stage.said(NOT_RUN) > 0
        assert stage.said("ConcurrentObjectUseError") == 0


@pytest.fixture
def short_patience(rabbitmq_server: RabbitMQServer) -> Iterator[None]:
    """The broker closes the channel of a consumer that has not answered for four seconds."""

    def put(consumer_timeout: int, tick: int) -> None:
        for name, value in (("consumer_timeout", consumer_timeout), ("channel_tick_interval", tick)):
            rabbitmq_server.rabbitmqctl("eval", f"application:set_env(rabbit, {name}, {value}).")

    put(4000, 1000)
    yield
    put(1_800_000, 60_000)


@pytest.mark.parametrize("pool", POOLS[:2])
def test_the_brokers_consumer_time_out_ends_no_worker_and_runs_nothing_twice(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, short_patience: None, pool: str
) -> None:
    with new_stage("rabbitmq") as stage:
        worker = stage.worker(pool=pool)
        sent = begun(stage)
        wait_until(lambda: stage.said(ADOPTED) >= 2, 60, stage.logs)
        assert stage.said("PRECONDITION_FAILED") >= 2

        stage.release()

        stage.state_of(sent, "SUCCESS")
        nothing_left(stage, rabbitmq_server)
        assert starts(stage, sent) == 1
        assert stage.said(LOST) <= 4, "once in a time-out"
        assert worker.container.status == "running"
