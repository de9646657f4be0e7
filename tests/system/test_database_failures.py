"""A database that fails in each way while tasks fail steadily: no letter is lost, no worker dies or waits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
import redis
from django.core.management import call_command

from hardening.testing.containers import ProcessWorker
from hardening.testing.servers import LocalServer, MariaDBServer, PostgresServer
from tests.conftest import serve
from tests.helpers.wait import wait_until

from .stage import ALIAS, Stage

POOLS = ("prefork", "gevent")
DEAD_LETTER_QUEUE = "celery_hardening.dead_letters"
LEFT_PARKED = "parked letters stay on the broker"
_PATIENCE_SECONDS = 60.0
_EVERY_SECONDS = 0.05
_AT_ONCE = 4


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that the tests may break, with few connections to take."""
    yield from serve(lambda: PostgresServer(extra_settings=("max_connections=20",)))


@pytest.fixture(scope="module")
def own_mariadb() -> Iterator[MariaDBServer]:
    """A MariaDB that the tests may break."""
    yield from serve(MariaDBServer)


@pytest.mark.parametrize("pool", POOLS)
def test_a_postgres_that_is_killed_then_read_only_then_full_costs_no_letter_and_no_process(
    new_stage: Callable[..., Any], own_postgres: PostgresServer, pool: str
) -> None:
    with new_stage("redis", database_url=own_postgres.url) as stage:
        survives(stage, pool, own_postgres, (killed, read_only, full))


def test_a_mariadb_that_is_killed_costs_no_letter_and_no_process(
    new_stage: Callable[..., Any], own_mariadb: MariaDBServer
) -> None:
    with new_stage("redis", database_url=own_mariadb.url) as stage:
        survives(stage, "prefork", own_mariadb, (killed,))


Failure = Callable[[Any, Callable[[], bool]], Any]
"""A context in which the database fails; entered when letters are parked, which the function tells."""


def survives(stage: Stage, pool: str, server: LocalServer, failures: tuple[Failure, ...]) -> None:
    """Let the database fail in these ways, one after the other, under one worker."""
    call_command("migrate", "dlq", database=ALIAS, verbosity=0)
    with redis.Redis.from_url(stage.broker_url) as client:
        worker = stage.worker(pool=pool, TEST_DLQ=json.dumps({"INGEST_EVERY_SECONDS": 0.5}))
        processes = pids(worker)
        with steadily(stage) as sent:
            for fail in failures:
                direct = stage.send("bug", "before")
                stage.letter_of(direct, _PATIENCE_SECONDS)
                turns = stage.said(LEFT_PARKED)

                def parked_and_left_there(turns: int = turns) -> bool:
                    return client.llen(DEAD_LETTER_QUEUE) >= 3 and stage.said(LEFT_PARKED) > turns

                with fail(server, parked_and_left_there):
                    # Failures are reported, since their letters are kept, and all else is served.
                    stage.state_of(stage.send("bug", "meanwhile"), "FAILURE", _PATIENCE_SECONDS)
                    stage.state_of(stage.send("succeed", "meanwhile"), "SUCCESS", _PATIENCE_SECONDS)
                wait_until(lambda: not client.llen(DEAD_LETTER_QUEUE), _PATIENCE_SECONDS, stage.logs)
        for result in sent:
            stage.state_of(result, "FAILURE", _PATIENCE_SECONDS)
        stage.nothing_unacked(_PATIENCE_SECONDS)

        ids = [result.id for result in sent]
        wait_until(lambda: len(stage.letters(task_id__in=ids)) >= len(ids), _PATIENCE_SECONDS, stage.logs)
        assert Counter(letter.task_id for letter in stage.letters(task_id__in=ids)) == Counter(ids)
        assert pids(worker) == processes
        assert stage.said("the worker's duty 'dlq") == 0  # Which would be an error with its traceback.


@contextmanager
def steadily(stage: Stage) -> Iterator[list[Any]]:
    """Tasks that fail are sent all the time, and listed: no faster than a busy machine takes them."""
    sent: list[Any] = []
    over = Event()

    def send() -> None:
        while not over.wait(_EVERY_SECONDS):
            if len(sent) < _AT_ONCE or sent[-_AT_ONCE].state == "FAILURE":
                sent.append(stage.send("bug", len(sent)))

    thread = Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()


@contextmanager
def killed(server: LocalServer, parked: Callable[[], bool]) -> Iterator[None]:
    server.kill()
    wait_until(parked, _PATIENCE_SECONDS)
    yield
    server.start()


@contextmanager
def read_only(server: PostgresServer, parked: Callable[[], bool]) -> Iterator[None]:
    """As a standby is, or a primary that was told to be: reads go on, and connections stay open."""
    with psycopg.connect(
        server.url, autocommit=True, options="-c default_transaction_read_only=off"
    ) as operator:
        operator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        operator.execute("SELECT pg_reload_conf()")
        try:
            wait_until(parked, _PATIENCE_SECONDS)
            yield
        finally:
            operator.execute("ALTER SYSTEM RESET default_transaction_read_only")
            operator.execute("SELECT pg_reload_conf()")


@contextmanager
def full(server: PostgresServer, parked: Callable[[], bool]) -> Iterator[None]:
    """Every connection is taken, also each that a worker gives back."""
    with ExitStack() as taken:

        def take_what_is_free() -> bool:
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                while True:
                    taken.enter_context(psycopg.connect(server.url))
            return parked()

        wait_until(take_what_is_free, _PATIENCE_SECONDS)
        yield


def pids(worker: ProcessWorker) -> set[int]:
    """Of the parent and its children."""
    return {info["pid"] for info in worker.get_running_processes_info(["pid"])}
