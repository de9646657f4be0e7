"""Fifty rolling restarts of two workers under load lose nothing; only what was cut runs twice."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from hardening.testing.servers import RabbitMQServer, RedisServer, ServerMissing
from tests.conftest import absent
from tests.helpers.dlq_databases import database_alias_for
from tests.helpers.rolling_restart import Ledger, roll
from tests.system.stage import ALIAS, Stage, copy_database, database_entry, migrate_sqlite

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "50"))

ROLLED = [("redis", "prefork"), ("rabbitmq", "gevent")]
"""Each broker and each pool once; tests/system does five rounds of all four."""

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize(("broker", "pool"), ROLLED)
def test_fifty_restarts_lose_nothing_and_repeat_only_what_was_cut(
    tmp_path: Path, broker: str, pool: str
) -> None:
    with ExitStack() as stack:
        ledger = _rolled(stack, tmp_path, broker, pool)
    print(f"\nRolling restart, {pool} on {broker}: {ledger}")

    assert ledger.lost == []
    assert ledger.unexplained == [], ledger.evidence()
    assert set(ledger.retries) == {"0"}
    assert ledger.letters == 0
    assert ledger.left == 0
    assert set(ledger.exits) == {0}


def _rolled(stack: ExitStack, directory: Path, broker: str, pool: str) -> Ledger:
    try:
        server = stack.enter_context(RedisServer())
        rabbit = stack.enter_context(RabbitMQServer()) if broker == "rabbitmq" else None
    except ServerMissing as missing:
        absent(str(missing))
    template = directory / "template.sqlite3"
    migrate_sqlite(template)
    url = copy_database(template, directory)
    stack.enter_context(database_alias_for(ALIAS, database_entry(url)))
    if rabbit is None:
        broker_url, unacked, waiting = server.url_for(0), *_counts_of_redis(server.url_for(0))
    else:
        vhost = f"rolling-{uuid4().hex[:8]}"
        broker_url, unacked, waiting = rabbit.add_vhost(vhost), *_counts_of_rabbitmq(rabbit, vhost)
    stage = Stage(broker_url, server.url_for(1), url, directory, unacked)
    stack.callback(stage.close)
    return roll(
        stage,
        pool=pool,
        rounds=ROUNDS,
        letters=lambda: _letters(directory),
        left=lambda: waiting() + unacked(),
    )


def _counts_of_redis(url: str) -> tuple[Callable[[], int], Callable[[], int]]:
    client = redis.Redis.from_url(url)
    return (
        lambda: int(client.hlen("unacked")) + int(client.hlen("unacked.leased")),
        lambda: int(client.llen("celery")),
    )


def _counts_of_rabbitmq(server: RabbitMQServer, vhost: str) -> tuple[Callable[[], int], Callable[[], int]]:
    def count(what: str) -> int:
        listing = server.rabbitmqctl("list_queues", "--quiet", "--vhost", vhost, "name", what)
        rows = [line.split() for line in listing.splitlines()]
        return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] == "celery")

    return lambda: count("messages_unacknowledged"), lambda: count("messages_ready")


def _letters(directory: Path) -> int:
    with sqlite3.connect(directory / "database.sqlite3") as connection:
        return int(connection.execute("select count(*) from dlq_deadletter").fetchone()[0])
