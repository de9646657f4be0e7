"""The gate on green pools: prefetch by broker, connections to Redis, and the steps that keep it busy."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from hardening.gate import on_worker_init
from hardening.saturation import AcksAtOnce, UnhurriedReads, acks_at_once, highest_concurrency, unhurried
from tests.helpers.hardened_apps import SINK, hardened_app

REDIS = "redis://127.0.0.1:1/0"
BARE = {"hostname": "w@host", "consumer_cls": "celery.worker.consumer:Consumer"}
STEPS = {"hardening.saturation.UnhurriedReads", "hardening.saturation.AcksAtOnce"}


@pytest.fixture(autouse=True)
def _sink(isolated: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.HARDENING = dict(SINK)
    monkeypatch.setattr("hardening.pool_findings.is_patched", lambda pool: True)


def start(pool: str = "gevent", concurrency: int | str = 30, app: Any = None, **conf: Any) -> Any:
    """What the gate sees of a worker."""
    app = app or hardened_app(**{"task_time_limit": 9, "broker_url": REDIS, **conf})
    worker = SimpleNamespace(
        app=app, pool_cls=pool, concurrency=concurrency, prefetch_multiplier=4, options={}, **BARE
    )
    on_worker_init(worker)
    return worker


def limit_of(app: Any) -> Any:
    return app.connection_for_read().transport_options.get("max_connections")


@pytest.mark.parametrize(
    ("broker", "multiplier"),
    [(REDIS, 2), ("sentinel://127.0.0.1:1", 2), ("amqp://127.0.0.1:1//", 1), ("memory://", 2)],
)
def test_a_green_pool_prefetches_what_its_broker_needs(broker: str, multiplier: int) -> None:
    assert start(broker_url=broker).prefetch_multiplier == multiplier


def test_twice_the_prefetch_over_rabbitmq_is_refused(capsys: Any) -> None:
    app = hardened_app(task_time_limit=9, broker_url="amqp://127.0.0.1:1//", worker_prefetch_multiplier=2)
    worker = SimpleNamespace(
        app=app, pool_cls="gevent", concurrency=5, prefetch_multiplier=2, options={}, **BARE
    )

    with pytest.raises(SystemExit):
        on_worker_init(worker)

    assert "worker_prefetch_multiplier is 2, enforced is 1" in capsys.readouterr().err


def test_each_greenlet_gets_a_connection_and_some_are_left() -> None:
    app = start(broker_transport_options={"visibility_timeout": 60}).app

    assert limit_of(app) == 50
    assert app.connection_for_write().transport_options["max_connections"] == 50
    assert app.conf.broker_transport_options["visibility_timeout"] == 60


@pytest.mark.parametrize("given", [50, 51, 400])
def test_a_limit_that_is_enough_is_kept(given: int) -> None:
    assert limit_of(start(broker_transport_options={"max_connections": given}).app) == given


@pytest.mark.parametrize("given", [1, 10, 49, "400"])
def test_a_limit_that_is_too_small_or_no_number_is_refused(given: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        start(broker_transport_options={"max_connections": given})

    assert ended.value.code == 78
    said = capsys.readouterr().err
    assert f"ERROR CH012: broker_transport_options.max_connections is {given!r}, at least 50" in said
    assert 'remedy: Remove "max_connections" from it, set at least 50, or lower --concurrency.' in said


@pytest.mark.parametrize(("concurrency", "refused"), [(80, False), (81, True)])
def test_no_limit_means_the_hundred_of_the_client(concurrency: int, refused: bool) -> None:
    options = {"max_connections": None}
    if refused:
        with pytest.raises(SystemExit):
            start(concurrency=concurrency, broker_transport_options=options)
    else:
        start(concurrency=concurrency, broker_transport_options=options)


def test_report_mode_says_it_and_changes_nothing(settings: Any, capsys: Any) -> None:
    settings.HARDENING = {**SINK, "MODE": "report"}

    small = start(broker_transport_options={"max_connections": 10}).app
    unset = start().app

    assert capsys.readouterr().err.count("CH012") == 1
    assert limit_of(small) == 10
    assert limit_of(unset) is None
    assert not STEPS & set(unset.steps["consumer"])


@pytest.mark.parametrize(
    ("pool", "broker"),
    [("prefork", REDIS), ("threads", REDIS), ("solo", REDIS), ("gevent", "amqp://127.0.0.1:1//")],
)
def test_other_pools_and_brokers_keep_their_limit(pool: str, broker: str) -> None:
    app = start(pool, broker_url=broker).app
    small = start(pool, broker_url=broker, broker_transport_options={"max_connections": 3}).app

    assert limit_of(app) is None
    assert limit_of(small) == 3
    assert bool(STEPS & set(app.steps["consumer"])) == (pool == "gevent")


def test_our_own_limit_is_not_taken_for_the_projects_at_the_next_start() -> None:
    app = start(concurrency=10).app

    start(concurrency=200, app=app)

    assert limit_of(app) == 220


@pytest.mark.parametrize(
    ("concurrency", "autoscale", "highest"),
    [(5, None, 5), (5, (40, 3), 40), (5, "30,2", 30), (5, "30,", 30), (50, (40, 3), 50)],
)
def test_the_highest_concurrency_is_that_of_autoscale_too(
    concurrency: int, autoscale: Any, highest: int
) -> None:
    worker = SimpleNamespace(concurrency=concurrency, options={"autoscale": autoscale})

    assert highest_concurrency(worker) == highest


def test_a_concurrency_that_celery_resolves_later_counts_as_the_processors() -> None:
    assert highest_concurrency(SimpleNamespace(concurrency="auto", options={})) >= 1


def test_between_two_reads_there_is_nothing_and_no_wait() -> None:
    now = 100.0
    reads = []
    drain = unhurried(lambda **options: reads.append((now, options)), 15, clock=lambda: now)

    for now in (100.0, 100.1, 114.9, 115.0, 120.0, 131.0):  # noqa: B007
        with suppress(TimeoutError):
            drain(timeout=0.1)

    assert reads == [(when, {"timeout": 0.1}) for when in (100.0, 115.0, 131.0)]


class Connection:
    def __init__(self, *, supports: bool = True, heartbeat: float = 60) -> None:
        self.supports_heartbeats = supports
        self._heartbeat = heartbeat

    def get_heartbeat_interval(self) -> float:
        return self._heartbeat

    def drain_events(self, **_: Any) -> str:
        return "read"


def consumer(connection: Any, *, green: bool = True, **more: Any) -> Any:
    dispatcher = SimpleNamespace(connection=connection)
    return SimpleNamespace(pool=SimpleNamespace(is_green=green), event_dispatcher=dispatcher, **more)


@pytest.mark.parametrize(
    ("connection", "slowed"),
    [(Connection(), True), (Connection(supports=False), False), (Connection(heartbeat=0), False)],
)
def test_only_a_connection_with_heartbeats_is_read_unhurriedly(connection: Any, slowed: bool) -> None:
    parent = consumer(connection)
    UnhurriedReads(parent).start(parent)

    assert connection.drain_events(timeout=0.1) == "read"
    if slowed:
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.1)
    else:
        assert connection.drain_events(timeout=0.1) == "read"


def test_a_consumer_without_events_starts() -> None:
    parent = SimpleNamespace(pool=SimpleNamespace(is_green=True), event_dispatcher=None)

    UnhurriedReads(parent).start(parent)


def test_the_steps_are_for_green_pools_and_acks_for_celery_without_its_own_way() -> None:
    prefork = consumer(None, green=False)
    celery_5_6 = consumer(None)
    celery_5_7 = consumer(None, call_soon_ack=print)

    assert not UnhurriedReads(prefork).include_if(prefork)
    assert UnhurriedReads(celery_5_7).include_if(celery_5_7)
    assert [AcksAtOnce(c).include_if(c) for c in (prefork, celery_5_6, celery_5_7)] == [False, True, False]


def test_acknowledgements_do_not_wait_for_the_loop_and_all_else_does() -> None:
    class Message:
        def ack_log_error(self, *args: Any) -> tuple[Any, ...]:
            return ("acked", *args)

        def reject_log_error(self, *args: Any) -> tuple[Any, ...]:
            raise BrokenPipeError("gone")

    waiting: list[Any] = []
    call_soon = acks_at_once(lambda function, *args: waiting.append(function))

    assert call_soon(Message().ack_log_error, 1, 2) == ("acked", 1, 2)
    assert call_soon(Message().reject_log_error, 1, 2) is None
    call_soon(print, "add a consumer")

    assert waiting == [print]


def test_a_consumer_that_reconnects_is_changed_once() -> None:
    class Consumer:
        pool = SimpleNamespace(is_green=True)

        def call_soon(self, function: Any) -> None: ...

    parent: Any = Consumer()
    step = AcksAtOnce(parent)
    step.start(parent)
    first = parent.call_soon
    step.start(parent)

    assert parent.call_soon is first


def test_a_green_worker_that_waits_for_its_broker_lets_its_greenlets_run() -> None:
    # As Celery starts: the import on the way to the patch is what kombu keeps.
    code = (
        "import sys, time\n"
        "sys.argv = ['celery', 'worker', '-P', 'gevent']\n"
        "import celery\n"
        "celery.maybe_patch_concurrency()\n"
        "from kombu.utils import functional\n"
        "from hardening.saturation import wait_without_stopping\n"
        "wait_without_stopping()\n"
        "import gevent\n"
        "ran = []\n"
        "gevent.spawn(ran.append, 1)\n"
        "tries = iter([ValueError, ValueError])\n"
        "def connect():\n"
        "    for error in tries:\n"
        "        raise error\n"
        "functional.retry_over_time(connect, ValueError, interval_start=0.01, interval_step=0)\n"
        "assert ran == [1]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
