"""The rules for redis-py, on errors that it really raised; a real Redis refuses.

What only a Redis Cluster, a Redis that is loading or a full disk would say comes from a server that
speaks the protocol and says nothing else, so the client parses a real reply.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from threading import Thread

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.failing_http import FailingHttp, self_signed
from tests.helpers.verdicts import judged, said

NEVER = Retry(NoBackoff(), 0)


@pytest.fixture
def client(redis_server):
    with redis.Redis(host=redis_server.host, port=redis_server.port, retry=NEVER) as client:
        client.flushall()
        yield client


@contextmanager
def replying(reply):
    """A client of a server that answers each command with this error."""
    listener = socket.create_server((LOOPBACK, 0))

    def run():
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(f"-{reply}\r\n".encode() * data.count(b"*"))

    thread = Thread(target=run, daemon=True)
    thread.start()
    with (
        listener,
        redis.Redis(
            host=LOOPBACK,
            port=listener.getsockname()[1],
            protocol=2,
            driver_info=None,  # So that the first command is the test's own.
            retry=NEVER,
            socket_timeout=5,
        ) as client,
    ):
        yield client
    thread.join(5)


def verdict_on_reply(reply):
    with replying(reply) as client:
        return said(judged(client.get, "key"))


def test_no_connection_is_transient():
    with redis.Redis(host=LOOPBACK, port=free_port(), retry=NEVER) as client:
        assert said(judged(client.ping)) == ("transient", "redis.connection", "")


def test_a_redis_that_does_not_answer_is_transient(make_redis):
    server = make_redis()
    server.pause()
    with redis.Redis(host=server.host, port=server.port, socket_timeout=0.1, retry=NEVER) as client:
        assert said(judged(client.ping)) == ("transient", "redis.connection", "")
    server.resume()


def test_a_pool_in_full_use_is_transient(client):
    pool = redis.ConnectionPool(max_connections=1, **{**client.get_connection_kwargs(), "retry": NEVER})
    held = pool.get_connection()
    assert said(judged(pool.get_connection)) == ("transient", "redis.connection", "")
    pool.release(held)
    pool.disconnect()


def test_an_untrusted_certificate_is_permanent(tmp_path):
    with FailingHttp(self_signed(tmp_path / "server.pem")) as server:
        server.answering()
        with redis.Redis(host=LOOPBACK, port=server.port, ssl=True, retry=NEVER) as client:
            assert said(judged(client.ping)) == ("permanent", "redis.certificate", "")


def test_a_wrong_password_is_transient_and_a_missing_permission_permanent(client):
    client.acl_setuser("reader", enabled=True, passwords=["+right"], commands=["+get"], keys=["*"])
    port = client.get_connection_kwargs()["port"]
    options = {"host": LOOPBACK, "port": port, "username": "reader", "retry": NEVER}
    with redis.Redis(**{**options, "password": "wrong"}) as wrong:
        assert said(judged(wrong.get, "key")) == ("transient", "redis.authentication", "WRONGPASS")
    with redis.Redis(**{**options, "password": "right"}) as reader:
        assert said(judged(reader.set, "key", "1")) == ("permanent", "redis.permission", "NOPERM")
    client.acl_deluser("reader")


def test_a_missing_password_is_transient():
    expected = ("transient", "redis.authentication", "NOAUTH")
    assert verdict_on_reply("NOAUTH Authentication required.") == expected


def test_a_full_redis_is_transient(make_redis):
    server = make_redis(maxmemory="3mb")

    with redis.Redis(host=server.host, port=server.port, retry=NEVER) as client:

        def fill():
            for number in range(100):
                client.set(f"key{number}", "x" * 100_000)

        assert said(judged(fill)) == ("transient", "redis.busy", "OOM")


def test_a_write_to_a_replica_is_transient(make_redis):
    server = make_redis(replica_of=make_redis())
    with redis.Redis(host=server.host, port=server.port, retry=NEVER) as client:
        assert said(judged(client.set, "key", "1")) == ("transient", "redis.busy", "READONLY")


def test_replies_of_a_busy_server_are_transient():
    for reply in ("LOADING Redis is loading", "TRYAGAIN later", "CLUSTERDOWN down", "MASTERDOWN gone"):
        assert verdict_on_reply(reply) == ("transient", "redis.busy", reply.split()[0])
    for reply in ("MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381"):
        assert verdict_on_reply(reply) == ("transient", "redis.busy", reply.split()[0])
    for reply in ("BUSY running a script", "MISCONF disk", "NOREPLICAS too few"):
        assert verdict_on_reply(reply) == ("transient", "redis.reply", reply.split()[0])


def test_a_command_that_does_not_fit_the_key_is_permanent(client):
    client.set("text", "1")
    assert said(judged(client.lpush, "text", "1")) == ("permanent", "redis.reply", "WRONGTYPE")
    client.xgroup_create("stream", "group", mkstream=True)
    assert said(judged(client.xgroup_create, "stream", "group")) == ("permanent", "redis.reply", "BUSYGROUP")
    assert verdict_on_reply("CROSSSLOT keys")[:2] == ("permanent", "redis.reply")


def test_any_other_reply_is_unknown(client):
    client.set("text", "no number")
    assert judged(client.incr, "text").kind == "unknown"
    assert judged(client.evalsha, "0" * 40, 0).kind == "unknown"
    assert judged(client.execute_command, "NOSUCHCOMMAND").rule == "redis.reply"


def test_a_watched_key_that_changed_is_transient(client):
    def lose():
        with client.pipeline() as pipe:
            pipe.watch("key")
            client.set("key", "changed")
            pipe.multi()
            pipe.get("key")
            pipe.execute()

    assert said(judged(lose)) == ("transient", "redis.contention", "")


def test_a_lock_that_another_holds_is_transient_and_its_misuse_unknown(client):
    def wait_in_vain():
        with client.lock("lock", blocking_timeout=0.01):
            pass

    with client.lock("lock", timeout=10):
        assert said(judged(wait_in_vain)) == ("transient", "redis.lock", "")
    assert judged(client.lock("lock").release).kind == "unknown"


def test_what_cannot_be_sent_is_permanent(client):
    assert said(judged(client.set, "key", object())) == ("permanent", "redis.usage", "")
    assert said(judged(client.set, "key", {})) == ("permanent", "redis.usage", "")


def test_a_cluster_without_a_node_that_answers_is_transient():
    verdict = judged(RedisCluster, host=LOOPBACK, port=free_port(), retry=NEVER)
    assert said(verdict) == ("transient", "redis.cluster_connection", "")
