"""What LeaderScheduler takes from Celery's Scheduler, and what Celery's Beat does with it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.beat import BeatLazyFunc, Scheduler, Service

from beat_leader import scheduler as module
from beat_leader.choosing import OURS
from beat_leader.dispatch import Job, OwnFault
from beat_leader.entry import Entry
from beat_leader.producing import Line
from hardening.core.identity import BEAT_HEADER, SUPERSEDED_HEADER

DUE_MS = int(time.time()) * 1000


@pytest.fixture
def app():
    made = Celery("beat", broker="memory://", set_as_current=False)
    yield made
    made.close()


@pytest.fixture
def trusted():
    return SimpleNamespace(yes=True)


@pytest.fixture
def scheduler(app, trusted):
    made: Any = service(app).scheduler
    stopped: list[bool] = []
    made.stopped = stopped
    made._beating = SimpleNamespace(now=lambda: DUE_MS / 1000, stop=lambda: stopped.append(True))
    made._line = Line(app, lambda: trusted.yes)
    yield made
    made._line.drop()


def service(app: Celery) -> Service:
    ours: Any = OURS
    return Service(app, scheduler_cls=ours)


def job(task: str = "not registered", **more: Any) -> Job:
    entry = Entry(name="nightly", task=task, when=60, args=(1,), **more)
    return Job(entry=entry, due_ms=DUE_MS, next_ms=DUE_MS + 60_000, until_ms=DUE_MS + 60_000)


def received(app: Celery) -> list[Any]:
    with app.connection() as connection, connection.SimpleQueue("celery") as queue:
        return [queue.get_nowait() for _ in range(queue.qsize())]


def test_building_it_and_closing_it_starts_nothing(app) -> None:
    for lazy in (True, False):
        built: Any = service(app).get_scheduler(lazy=lazy)
        built.close()

        assert built._beating is None


def test_every_message_goes_through_apply_entry_as_those_who_patch_it_expect(
    app, scheduler, monkeypatch
) -> None:
    seen: list[str] = []
    plain = Scheduler.apply_entry

    def patched(*args: Any, **kwargs: Any) -> Any:
        _, entry = args
        seen.append(entry.name)
        entry.options["headers"] = {**entry.options.pop("headers", {}), "traced": "yes"}
        return plain(*args, **kwargs)

    monkeypatch.setattr(Scheduler, "apply_entry", patched)
    scheduler.publish(job())

    (message,) = received(app)
    assert seen == ["nightly"]
    assert message.headers["celery_beat_task"] is True
    assert message.headers["traced"] == "yes"
    assert message.headers[BEAT_HEADER] == f"{DUE_MS} nightly"


def test_the_expiry_of_a_known_task_is_kept(app, scheduler) -> None:
    @app.task(name="known", expires=3600)  # type: ignore[untyped-decorator]
    def known(value: int) -> None: ...

    app.finalize()
    scheduler.publish(job("known"))

    (message,) = received(app)
    expires = datetime.fromisoformat(message.headers["expires"])
    assert expires - datetime.now(UTC) > timedelta(minutes=50)  # Of the task, and not the next due time.
    assert SUPERSEDED_HEADER not in message.headers


def test_an_argument_that_cannot_be_made_or_written_is_its_messages_own_fault_and_not_the_brokers(
    scheduler,
) -> None:
    def unreachable() -> None:
        raise ConnectionRefusedError("of the argument")

    for value in (object(), BeatLazyFunc(unreachable)):
        with pytest.raises(OwnFault, match="nightly"):
            scheduler.publish(job(kwargs={"value": value}))


def test_nothing_leaves_once_the_term_is_not_trusted_whatever_came_before(app, scheduler, trusted) -> None:
    trusted.yes = False

    with pytest.raises(Exception, match="nothing was sent"):
        scheduler.publish(job())
    assert received(app) == []


def test_a_tick_never_raises(scheduler, monkeypatch) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("as if")

    told: list[str] = []
    scheduler._beating.failed = told.append
    monkeypatch.setattr(module.LeaderScheduler, "_started", broken)

    assert scheduler.tick() == 0.5
    assert told == ["RuntimeError: as if"]


def test_a_signal_in_the_middle_of_a_tick_leaves_the_stop_to_the_end_of_the_loop(scheduler) -> None:
    scheduler._in_tick = True
    scheduler.close()
    assert scheduler.stopped == []

    scheduler._in_tick = False
    scheduler.close()
    scheduler.close()
    assert scheduler.stopped == [True]
