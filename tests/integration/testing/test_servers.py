"""Private servers: they answer, keep what they must, and leave nothing behind."""

from __future__ import annotations

import psutil
import psycopg
import pymysql
import pytest
import redis
from amqp.exceptions import NotAllowed
from kombu import Connection, Queue
from redis.backoff import NoBackoff
from redis.retry import Retry

from hardening.testing.errors import ProcessError, ServerMissing
from hardening.testing.servers import (
    MariaDBServer,
    PostgresServer,
    RabbitMQServer,
    RedisSentinel,
    RedisServer,
    rabbitmq,
)
from hardening.testing.servers.base import find_program
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


@pytest.mark.parametrize("name", ["redis", "postgres", "mariadb", "rabbitmq"])
def test_every_server_listens_on_the_loopback_interface_only(request, name):
    server = request.getfixturevalue(f"{name}_server")
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


@pytest.mark.parametrize("with_erl_call", [True, False])
def test_rabbitmq_counts_what_its_own_tool_lists(rabbitmq_server, monkeypatch, with_erl_call):
    if not with_erl_call:
        found = find_program
        monkeypatch.setattr(
            rabbitmq,
            "find_program",
            lambda *names, **more: None if "erl_call" in names else found(*names, **more),
        )
    columns = ("messages_ready", "messages_unacknowledged", "consumers")
    url = rabbitmq_server.add_vhost("counted")
    with Connection(url) as connection, connection.SimpleQueue("two words, [1, {2}]") as queue:
        for _ in range(2):
            queue.put("hello")
        queue.get(timeout=5)
        Queue("empty", channel=connection.default_channel).declare()
        listed = rabbitmq_server.rabbitmqctl("list_queues", "--vhost", "counted", "name", *columns)
        lines = [line.split("\t") for line in listed.splitlines()[1:]]

        counts = rabbitmq_server.queue_counts("counted", *columns)

    assert counts == {name: tuple(map(int, numbers)) for name, *numbers in lines}
    assert sum(sum(numbers) for numbers in counts.values()) == 3
    rabbitmq_server.delete_vhost("counted")
    with Connection(url) as connection, pytest.raises(NotAllowed):
        connection.connect()


def test_what_rabbitmq_cannot_evaluate_is_an_error_and_no_value(rabbitmq_server):
    with pytest.raises(ProcessError, match="badarith"):
        rabbitmq_server.evaluate("1 / 0")


def test_two_rabbitmq_nodes_do_not_meet_and_each_takes_its_own_settings(rabbitmq_server):
    asked = "application:get_env(rabbit, consumer_timeout)"
    with start(RabbitMQServer, extra_config={"consumer_timeout": "12345"}) as other:
        assert other.node != rabbitmq_server.node
        running = other.rabbitmqctl("cluster_status", "--formatter", "json")
        assert rabbitmq_server.node not in running
        assert "12345" in other.evaluate(asked)
        assert "12345" not in rabbitmq_server.evaluate(asked)
