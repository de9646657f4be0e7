"""Stages over every broker and pool, and single ones for tests that break something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from hardening.testing.servers import RabbitMQServer, RedisServer
from tests.helpers.dlq_databases import database_alias_for

from .stage import ALIAS, Stage, copy_database, database_entry, migrate_sqlite


@pytest.fixture(scope="session")
def database_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    template = tmp_path_factory.mktemp("template") / "database.sqlite3"
    migrate_sqlite(template)
    return template


@pytest.fixture(scope="session")
def on_redis() -> Callable[[str], Callable[[], int]]:
    """Counts the unacknowledged messages of a Redis broker."""

    def counter(url: str) -> Callable[[], int]:
        client = redis.Redis.from_url(url)
        # Those of plain workers and of our own.
        return lambda: int(client.hlen("unacked")) + int(client.hlen("unacked.leased"))

    return counter


def on_rabbitmq(server: RabbitMQServer, vhost: str) -> Callable[[], int]:
    """Counts the unacknowledged messages of a RabbitMQ virtual host."""

    def count() -> int:
        return sum(number for (number,) in server.queue_counts(vhost, "messages_unacknowledged").values())

    return count


@pytest.fixture(scope="session")
def new_stage(
    database_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    on_redis: Callable[[str], Callable[[], int]],
    request: pytest.FixtureRequest,
    django_db_blocker: Any,
) -> Callable[..., Any]:
    """Open a stage; a context manager. `redis_server` is a Redis of the test's own where it breaks it."""
    from contextlib import contextmanager

    @contextmanager
    def open_stage(
        broker: str = "redis", *, own_redis: RedisServer | None = None, database_url: str | None = None
    ) -> Iterator[Stage]:
        directory = tmp_path_factory.mktemp("stage")
        server: RedisServer = own_redis or request.getfixturevalue("redis_server")
        with ExitStack() as stack:
            if broker == "redis":
                broker_url = server.url_for(0)
                with redis.Redis.from_url(broker_url) as client:
                    client.flushall()
                unacked = on_redis(broker_url)
            else:
                rabbit: RabbitMQServer = request.getfixturevalue("rabbitmq_server")
                vhost = f"stage-{uuid4().hex[:8]}"
                broker_url = rabbit.add_vhost(vhost)
                stack.callback(rabbit.delete_vhost, vhost)
                unacked = on_rabbitmq(rabbit, vhost)
            url = database_url or copy_database(database_template, directory)
            stack.enter_context(database_alias_for(ALIAS, database_entry(url)))
            stack.enter_context(django_db_blocker.unblock())
            stage = Stage(broker_url, server.url_for(1), url, directory, unacked)
            stack.callback(stage.close)
            yield stage

    return open_stage
