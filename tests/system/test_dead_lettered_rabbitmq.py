"""What RabbitMQ gives up is taken in: a letter that tells why, and a result for all who wait for it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import chord
from kombu import Connection

from hardening.core.identity import Identity
from hardening.poison.returned import RETURNED_KEY
from hardening.poison.work import digest_of_identity
from hardening.queues import DEAD_LETTERED_QUEUE, durable_queue
from hardening.stores.database import DatabaseStore
from hardening.testing.servers import RabbitMQServer
from tests.helpers.wait import wait_until

from .stage import ALIAS, Sent, Stage

QUEUES: dict[str, dict[str, Any]] = {
    "plenty": {},
    "few": {"delivery_limit": 1},
    "classic": {"quorum": False},
    "elsewhere": {},
}
"""Those that a worker consumes, and one that it does not."""


@contextmanager
def staged(new_stage: Callable[..., Any]) -> Iterator[Stage]:
    with new_stage("rabbitmq") as stage:
        stage.sender.conf.task_queues = [durable_queue(name, **more) for name, more in QUEUES.items()]
        with Connection(stage.broker_url) as connection, connection.channel() as channel:
            # A worker binds all queues for native delay, and declares only those that it consumes.
            durable_queue("elsewhere")(channel).declare()
        yield stage


def started(stage: Stage, **options: Any) -> Any:
    return stage.worker(
        extra_args=("-Q", "plenty,few,classic", "-I", "tests.system.project.broken"),
        TEST_QUEUES=json.dumps(QUEUES),
        TEST_DLQ=json.dumps({"INGEST_EVERY_SECONDS": 1}),
        **options,
    )


def taken_from(stage: Stage, queue: str) -> AbstractContextManager[Any]:
    """A message that waits in a queue, as a plain worker has it; it may be rejected in the block."""

    @contextmanager
    def take() -> Iterator[Any]:
        with Connection(stage.broker_url) as connection, connection.channel() as channel:
            yield wait_until(durable_queue(queue, **QUEUES[queue])(channel).get, 30, stage.logs)

    return take()


def waiting_in(stage: Stage, queue: str) -> int:
    with Connection(stage.broker_url) as connection:
        channel: Any = connection.channel()
        return int(channel.queue_declare(queue=queue, passive=True).message_count)


POISON = {"prefork": "kill_own_process", "gevent": "run_out_of_memory"}
"""What is a death that the worker outlives, on each pool."""


@pytest.mark.parametrize("pool", POISON)
def test_whatever_the_broker_gives_up_becomes_a_letter_with_its_reason_and_its_end(
    new_stage: Callable[..., Any], pool: str
) -> None:
    name = POISON[pool]
    with staged(new_stage) as stage:
        started(stage, pool=pool)
        signature = stage.sender.signature

        # The broker's delivery limit comes before ours for a member of a chord, and ours before the broker's.
        killing = signature(name, queue="few")
        header = [killing, signature("succeed", queue="classic")]
        waits: Any = chord(header, app=stage.sender)(signature("succeed", queue="plenty"))
        member = Sent(waits.parent.results[0].id, stage.sender)
        poison = stage.send(name, queue="plenty")
        # Natively delayed: it hops through queues that dead-letter it, and is no dead letter.
        delayed = stage.send("succeed", queue="plenty", countdown=2)
        delayed_and_rejected = stage.send("succeed", 1, queue="elsewhere", countdown=1)
        with taken_from(stage, "elsewhere") as message:
            assert message.headers["id"] == delayed_and_rejected.id
            message.reject(requeue=False)
        # A producer that is not ours gives its message a time to live.
        foreign = stage.send("succeed", queue="elsewhere", expiration=0.1)

        for sent, reason, queue, state, attempts in (
            (foreign, "expired", "elsewhere", "REVOKED", 1),
            (delayed_and_rejected, "broker_rejected", "elsewhere", "FAILURE", 1),
            (member, "delivery_limit", "few", "FAILURE", 3),
            (poison, "poison", "plenty", "FAILURE", 3),
        ):
            letter = stage.letter_of(sent, 60)
            assert (letter.reason, letter.queue) == (reason, queue)
            assert len(stage.attempts(letter)) == attempts
            stage.state_of(sent, state)
        stage.state_of(Sent(waits.id, stage.sender), "FAILURE", 40)
        assert len(stage.effects(f"{name} {member.id}")) == 2, "the limit allows one more delivery"
        assert len(stage.effects(f"{name} {poison.id}")) == 3
        stage.state_of(delayed, "SUCCESS")
        assert stage.letters(task_id=delayed.id) == []

        # Rejected by its own task: its letter is there already.
        rejected = stage.send("reject", queue="plenty")
        letter = stage.letter_of(rejected)
        stage.state_of(rejected, "FAILURE")
        wait_until(lambda: stage.unacked() == 0 == waiting_in(stage, DEAD_LETTERED_QUEUE), 30, stage.logs)
        assert [each.captures for each in stage.letters(task_id=rejected.id)] == [1]
        assert letter.reason == "rejected"

        # While the database is away, letters wait on the broker.
        database = Path(stage.database_url.removeprefix("sqlite:///"))
        away = database.rename(database.with_suffix(".away"))
        meanwhile = stage.send("succeed", queue="elsewhere", expiration=0.1)
        stage.state_of(meanwhile, "REVOKED", 40)
        away.rename(database)
        assert stage.letter_of(meanwhile, 40).reason == "expired"

        # A replay goes to the queue where the message died.
        [dead] = stage.letters(task_id=delayed_and_rejected.id)
        stage.manage("dlq_replay", str(dead.id), TEST_QUEUES=json.dumps(QUEUES))
        wait_until(lambda: waiting_in(stage, "elsewhere") == 1, 20, stage.logs)


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_what_goes_back_unfinished_is_noted_for_who_gets_it_next_and_what_runs_on_is_not_dead(
    new_stage: Callable[..., Any], rabbitmq_server: RabbitMQServer, pool: str
) -> None:
    def noted(sent: Sent) -> bool:
        store = DatabaseStore(ALIAS)
        hours = (store.read(RETURNED_KEY).value or {}).get("hours", {})
        store.close()
        return any(digest_of_identity(Identity(sent.id, 0, None))[:16] in text for text in hours.values())

    def vhost() -> str:
        return stage.broker_url.rpartition("/")[2]

    def cut() -> None:
        rabbitmq_server.rabbitmqctl("close_all_connections", "--vhost", vhost(), "cut by the test")

    def messages() -> dict[str, tuple[int, ...]]:
        return rabbitmq_server.queue_counts(vhost(), "messages")

    with staged(new_stage) as stage:
        worker = started(stage, pool=pool, TEST_HARDENING=json.dumps({"SHUTDOWN": {"GRACE": "0.5 s"}}))
        running = stage.send("held", queue="few")
        wait_until(lambda: stage.effects(f"started held {running.id}"), 30, stage.logs)
        waits = stage.send("succeed", queue="classic", countdown=11)
        wait_until(lambda: stage.unacked() == 2, 30, stage.logs)

        cut()
        wait_until(lambda: noted(waits), 30, stage.logs)
        wait_until(lambda: stage.said("is still run by"), 30, stage.logs)
        assert not noted(running), "it runs on"

        # The next lost connection brings it to its delivery limit, while it runs: nobody takes it for dead.
        cut()
        wait_until(lambda: messages().get(DEAD_LETTERED_QUEUE) == (1,), 30, stage.logs)
        stage.release()
        stage.state_of(running, "SUCCESS")
        wait_until(lambda: stage.said("is acknowledged: it has succeeded"), 30, stage.logs)
        assert stage.letters() == []

        stage.withhold()
        again = stage.send("held", queue="few")
        wait_until(lambda: stage.effects(f"started held {again.id}"), 30, stage.logs)
        os.kill(worker.container.process.pid, signal.SIGTERM)
        wait_until(lambda: noted(again), 30, stage.logs)
