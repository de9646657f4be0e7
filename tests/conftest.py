"""Servers and workers for every level; a server that is absent skips its tests, and fails them on CI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

from hardening.private import celery_version
from hardening.testing.servers import (
    LocalServer,
    MariaDBServer,
    PostgresServer,
    RabbitMQServer,
    RedisServer,
    ServerMissing,
)

if TYPE_CHECKING:
    from hardening.testing.containers import ProcessWorker

Server = TypeVar("Server", bound=LocalServer)

TESTS = Path(__file__).parent
LEVELS = ("unit", "model", "contract", "integration", "system", "browser", "migrations", "chaos")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its level, its directory; leave out what this Celery does not have at all."""
    newer = [item for item in items if _is_for_a_newer_celery(item)]
    if newer:
        config.hook.pytest_deselected(items=newer)
        items[:] = [item for item in items if item not in newer]
    for item in items:
        level = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if level in LEVELS:
            item.add_marker(level)


def _is_for_a_newer_celery(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("celery_since")
    return marker is not None and celery_version() < marker.args


def absent(reason: str) -> NoReturn:
    """Skip because this machine lacks something; on CI, where everything must run, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"on CI nothing may be skipped: {reason}", pytrace=False)
    pytest.skip(reason)


def serve(make: Callable[[], Server]) -> Iterator[Server]:
    try:
        server = make()
    except ServerMissing as missing:
        absent(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for the whole run; do not stop it. To break one, use `make_redis`."""
    yield from serve(RedisServer)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run; do not stop it."""
    yield from serve(PostgresServer)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    """One MariaDB for the whole run; do not stop it."""
    yield from serve(MariaDBServer)


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQServer]:
    """One RabbitMQ for the whole run; do not stop it, and prefer `rabbitmq_url`."""
    yield from serve(RabbitMQServer)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The run's Redis, emptied for this test."""
    import redis

    with redis.Redis(host=redis_server.host, port=redis_server.port) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def rabbitmq_url(rabbitmq_server: RabbitMQServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A virtual host of the run's RabbitMQ that is this test's own."""
    vhost = f"test-{abs(hash(request.node.nodeid))}"
    yield rabbitmq_server.add_vhost(vhost)
    rabbitmq_server.delete_vhost(vhost)


@pytest.fixture
def make_redis() -> Iterator[Callable[..., RedisServer]]:
    """Start Redis servers of this test's own (`make_redis(append_only=True)`), to stop, kill or pause."""
    with ExitStack() as servers:

        def make(**options: Any) -> RedisServer:
            try:
                server = RedisServer(**options)
            except ServerMissing as missing:
                absent(str(missing))
            return servers.enter_context(server)

        yield make


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[..., ProcessWorker]]:
    """Start real `celery worker` processes with pytest-celery's API; arguments as `ProcessWorkerContainer`.

    Returns when the worker is ready, unless `wait=False`. All workers are ended with the test.
    """
    from hardening.testing.containers import ProcessWorker, ProcessWorkerContainer

    with ExitStack() as workers:

        def start(app: str, *, wait: bool = True, **options: Any) -> ProcessWorker:
            container = ProcessWorkerContainer(app, log_dir=tmp_path, **options)
            workers.callback(container.teardown)
            if wait:
                container.ready()
            return ProcessWorker(container)

        yield start
