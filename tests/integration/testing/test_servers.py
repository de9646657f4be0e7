"""Private servers: they answer, keep what they must, and leave nothing behind."""

from __future__ import annotations

import psutil
import psycopg
import pymysql
import pytest
import redis
from kombu import Connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from hardening.testing.errors import ServerMissing
from hardening.testing.servers import (
    MariaDBServer,
    PostgresServer,
    RabbitMQServer,
    RedisSentinel,
    RedisServer,
)
from tests.conftest import absent
from tests.helpers.wait import wait_until

NEVER = Retry(NoBackoff(), 0)


def start(cls, **options):
    try:
        return cls(**options).start()
    except ServerMissing as missing:
        absent(str(missing))


@pytest.fixture(params=[RedisServer, PostgresServer, MariaDBServer, RabbitMQServer], ids=lambda cls: cls.name)
def server(request):
    server = start(request.param)
    yield server
    server.close()


def client_of(server: RedisServer) -> redis.Redis:
    return redis.Redis(host=server.host, port=server.port)


def connect_postgres(server: PostgresServer) -> psycopg.Connection:
    return psycopg.connect(server.url, autocommit=True)


def connect_mariadb(server: MariaDBServer) -> pymysql.Connection:
    return pymysql.connect(
        host=server.host, port=server.port, user="root", database="hardening", autocommit=True
    )


def test_every_server_comes_back_on_the_same_port_and_leaves_nothing_behind(server):
    port, data_dir = server.port, server.data_dir
    server.kill()
    assert not server.is_ready()
    server.start()
    server.restart()
    assert server.is_ready()
    assert server.port == port

    family = [
        psutil.Process(server.process.pid),
        *psutil.Process(server.process.pid).children(recursive=True),
    ]
    server.close()
    _, alive = psutil.wait_procs(family, timeout=5)
    # Erlang's helper process ends a moment after its parent, and whoever adopts it reaps it when it likes.
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    assert not data_dir.exists()


def test_every_server_listens_on_the_loopback_interface_only(server):
    mine = {
        server.process.pid,
        *(child.pid for child in psutil.Process(server.process.pid).children(recursive=True)),
    }
    if isinstance(server, RabbitMQServer):
        mine.add(server.port_mapper.pid)
    listening = [c for c in psutil.net_connections("tcp") if c.pid in mine and c.status == psutil.CONN_LISTEN]
    assert listening
    assert {connection.laddr.ip for connection in listening} <= {"127.0.0.1", "::1"}  # type: ignore[union-attr]


def test_redis_keeps_its_data_over_a_kill():
    with start(RedisServer, append_only=True) as server:
        with client_of(server) as client:
            client.set("key", "value")
        server.kill()
        server.start()
        with client_of(server) as client:
            assert client.get("key") == b"value"


def test_redis_without_append_only_forgets():
    with start(RedisServer) as server:
        with client_of(server) as client:
            client.set("key", "value")
        server.restart()
        with client_of(server) as client:
            assert client.get("key") is None


def test_a_paused_redis_does_not_answer_until_it_is_resumed():
    with start(RedisServer) as server:
        server.pause()
        with redis.Redis(host=server.host, port=server.port, socket_timeout=0.2, retry=NEVER) as client:
            with pytest.raises(redis.exceptions.TimeoutError):
                client.ping()
            server.resume()
            assert client.ping()


def test_a_full_redis_refuses_writes():
    with (
        start(RedisServer, maxmemory="3mb") as server,
        client_of(server) as client,
        pytest.raises(redis.exceptions.OutOfMemoryError),
    ):
        for number in range(100):
            client.set(f"key{number}", "x" * 100_000)


def test_kombu_carries_messages_over_redis_and_rabbitmq(redis_url, rabbitmq_url):
    for url in (redis_url, rabbitmq_url):
        with Connection(url) as connection, connection.SimpleQueue("greetings") as queue:
            queue.put("hello")
            message = queue.get(timeout=5)
            assert message.payload == "hello"
            message.ack()


def test_sentinel_promotes_the_replica_of_a_killed_master():
    with (
        start(RedisServer) as master,
        start(RedisServer, replica_of=master) as replica,
        start(RedisSentinel, master=master, down_after_ms=300) as sentinel,
    ):
        assert sentinel.master_port() == master.port
        wait_until(
            lambda: sentinel.replica_count() == 1,
            timeout=20,
            message="Sentinel does not see the replica",
        )
        master.kill()

        wait_until(
            lambda: sentinel.master_port() == replica.port,
            timeout=30,
            message="the replica was not promoted",
        )


def test_postgres_keeps_its_commits_over_a_kill():
    with start(PostgresServer) as server:
        with connect_postgres(server) as connection:
            connection.execute("CREATE TABLE kept (value int)")
            connection.execute("INSERT INTO kept VALUES (42)")
        server.kill()
        server.start()
        with connect_postgres(server) as connection:
            assert connection.execute("SELECT value FROM kept").fetchone() == (42,)


def test_mariadb_keeps_its_commits_over_a_kill():
    with start(MariaDBServer) as server:
        with connect_mariadb(server) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE kept (value int)")
            cursor.execute("INSERT INTO kept VALUES (42)")
        server.kill()
        server.start()
        with connect_mariadb(server) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT value FROM kept")
            assert cursor.fetchone() == (42,)


def test_rabbitmq_keeps_confirmed_messages_over_a_kill():
    with start(RabbitMQServer) as server:
        with (
            Connection(server.url, transport_options={"confirm_publish": True}) as connection,
            connection.SimpleQueue("kept") as queue,
        ):
            queue.put("hello")
        server.kill()
        server.start()
        with Connection(server.url) as connection, connection.SimpleQueue("kept") as queue:
            assert queue.get(timeout=5).payload == "hello"


def test_two_rabbitmq_nodes_do_not_meet(rabbitmq_server):
    with start(RabbitMQServer) as other:
        assert other.node != rabbitmq_server.node
        running = other.rabbitmqctl("cluster_status", "--formatter", "json")
        assert rabbitmq_server.node not in running


def test_rabbitmq_takes_extra_settings():
    with start(RabbitMQServer, extra_config={"consumer_timeout": "12345"}) as server:
        assert "12345" in server.rabbitmqctl("eval", "application:get_env(rabbit, consumer_timeout).")
