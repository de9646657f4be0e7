"""A green worker whose connection comes back takes as many messages as before, and gives nothing back."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from celery.concurrency.gevent import TaskPool
from celery.worker import pidbox
from celery.worker.consumer.consumer import Consumer
from celery.worker.consumer.tasks import Tasks
from gevent.event import Event
from kombu.asynchronous.timer import Timer
from kombu.common import QoS

from hardening.leases.consumer import hardened_consumer
from hardening.leases.holdings import Holdings
from hardening.leases.keeper import Keeper
from hardening.leases.terms import Lease
from hardening.leases.transport import open_store
from hardening.private import celery_version
from hardening.testing.servers import RedisServer
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.usefixtures("isolated", "recording")

PLACES = 4
PREFETCH = 2
WHOLE = PLACES * PREFETCH


def consumer(app: Any, *, leased: bool, pool: Any = None) -> Any:
    kind = hardened_consumer(Consumer, lease=Lease(), holder="a worker", leased=leased)
    found = kind.__new__(kind)
    found.app, found.hub, found.pool, found.timer = app, None, pool, Timer()
    found.conninfo = app.connection_for_read()
    found.amqheartbeat, found.qos_global = 0, True
    found.prefetch_multiplier = PREFETCH
    found.initial_prefetch_count = WHOLE
    found.qos = None
    found.holdings = Holdings()
    found.keeper = Keeper(found.holdings, Lease())
    return found


@pytest.fixture
def greenlets() -> Iterator[Any]:
    """A pool of Celery's for gevent, and what its tasks wait for."""
    found: Any = TaskPool(PLACES)
    found.on_start()
    found.over = Event()
    yield found
    found.over.set()
    found._pool.join()


def run(greenlets: Any, tasks: int) -> None:
    for _ in range(tasks):
        greenlets._pool.spawn(greenlets.over.wait)
    gevent.sleep(0)


@pytest.mark.parametrize("tasks", range(PLACES + 1))
def test_celery_5_6_takes_the_greenlets_that_run_for_the_whole_pool(greenlets: Any, tasks: int) -> None:
    run(greenlets, tasks)

    assert greenlets.num_processes == (tasks if celery_version() < (5, 7) else PLACES)


@pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")
@pytest.mark.parametrize("leased", [True, False], ids=["leased", "not leased"])
@pytest.mark.parametrize("tasks", range(PLACES + 1))
def test_the_prefetch_count_after_a_reconnect_is_that_of_the_whole_pool(
    greenlets: Any, tasks: int, leased: bool
) -> None:
    found = consumer(hardened_app(), leased=leased, pool=greenlets)
    found.connection = SimpleNamespace(collect=lambda *_, **__: None, close=lambda: None, _transport=None)
    run(greenlets, tasks)

    found.on_connection_error_after_connected(ConnectionError("gone"))

    # Celery counts what runs by its list of requests, which is empty here.
    assert found.max_prefetch_count == WHOLE
    assert found.initial_prefetch_count == WHOLE


def test_a_pool_that_grew_has_the_prefetch_count_of_its_places(greenlets: Any) -> None:
    found = consumer(hardened_app(), leased=True, pool=greenlets)

    greenlets.grow(2)

    assert found.max_prefetch_count == WHOLE + 2 * PREFETCH


def test_what_falls_due_while_a_connection_begins_takes_its_own_credit_back(monkeypatch: Any) -> None:
    monkeypatch.setattr("celery.worker.consumer.consumer.task_reserved", lambda request: None)
    found = consumer(hardened_app(), leased=True)
    found.on_task_request = lambda request: None
    for request in ("one", "two"):
        found.timer.call_after(60, found.apply_eta_task, (request,))

    found.qos = QoS(lambda prefetch_count: None, found.initial_prefetch_count)
    assert found.qos.value == WHOLE + 2

    for scheduled in list(found.timer.queue):  # Before any other step of the consumer has started.
        scheduled.entry.fun(*scheduled.entry.args)
    assert found.qos.value == WHOLE
    assert "c.qos = QoS(" in inspect.getsource(Tasks.start)


def test_the_end_of_remote_controls_connection_gives_no_message_back(redis_server: RedisServer) -> None:
    app = hardened_app()
    app.conf.broker_url = redis_server.url_for(8)
    found = consumer(app, leased=True)
    tasks = found.connect()
    channel = tasks.default_channel
    channel.basic_qos(0, WHOLE, False)
    found.holdings.store = open_store(channel, lease=Lease(), holder="a worker")
    found.holdings.enter("tag", list_key="queue", message=b"{}")

    # As a green pool's remote control does, whose connection begins after the consumer's.
    control = found.connection_for_read()
    assert found.holdings.channel is channel
    assert control.default_channel.qos is not None
    control.release()

    assert found.holdings.tags() == ["tag"]
    assert found.holdings.unsent() == 0
    assert "with c.connection_for_read() as connection" in inspect.getsource(pidbox.gPidbox.loop)
    tasks.release()
    assert "tag" not in found.holdings, "the connection that takes tasks gives back what it took"
    found.holdings.store.client.close()
