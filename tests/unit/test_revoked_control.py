"""Whoever revokes through a hardened app keeps it first; the workers are told in any case."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.control import Control
from celery.result import AsyncResult
from celery.worker import state as worker_state
from celery.worker.control import Panel

from hardening import harden
from hardening.revoked.control import KeepsRevokes
from hardening.revoked.rules import COMMANDS, LOOK_EVERY_SECONDS, Revoke
from hardening.revoked.step import Revokes
from hardening.revoked.store import chosen_revoked
from hardening.revoked.stores.database import DatabaseRevoked
from hardening.revoked.stores.memory import MemoryRevoked
from hardening.revoked.stores.redis import RedisRevoked
from tests.helpers.hardened_apps import hardened_app, make_app, no_hardening
from tests.helpers.traffic import broken_store_settings

pytestmark = pytest.mark.usefixtures("isolated", "recording")

MEMORY = {"STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"}}


class Told(Control):
    """A project's own Control: remembers what was broadcast, and what was kept by then."""

    def broadcast(self, command: Any, arguments: Any = None, *args: Any, **kwargs: Any) -> Any:
        self.told = [*getattr(self, "told", ()), (command, arguments, kept(self.app))]
        return [{"w1": {"ok": "told"}}]


def kept(app: Any) -> set[Revoke]:
    return {mark.revoke for mark in chosen_revoked(app).changes().revoked}


def with_control(control: type[Control]) -> Any:
    app = make_app()
    app.control_cls = control
    return harden(app)


@pytest.fixture
def app(settings) -> Any:
    settings.HARDENING = {**settings.HARDENING, **MEMORY}
    return with_control(Told)


def revoke(app: Any) -> Any:
    return app.control.revoke("a", terminate=True)


def revoke_result(app: Any) -> Any:
    return AsyncResult("a", app=app).revoke()


def terminate(app: Any) -> Any:
    return app.control.terminate("a")


def command_line(app: Any) -> Any:
    return app.control.broadcast("revoke", arguments={"task_id": ["a"]}, reply=True, timeout=1.0)


@pytest.mark.parametrize("how", [revoke, revoke_result, terminate, command_line])
def test_a_revoke_is_kept_before_the_workers_are_told(app, how) -> None:
    how(app)

    (told,) = app.control.told
    assert told[0] == "revoke"
    assert told[2] == {Revoke("a")}


def test_a_stamp_is_kept_as_well(app) -> None:
    app.control.revoke_by_stamped_headers({"h": ["x", "y"]})

    assert app.control.told[0][2] == {Revoke("x", "h"), Revoke("y", "h")}


def test_other_commands_keep_nothing(app) -> None:
    app.control.rate_limit("a", "1/s")

    assert app.control.told[0][2] == set()


def test_a_control_of_the_projects_stays_in_charge(app) -> None:
    assert isinstance(app.control, Told)
    assert isinstance(app.control, KeepsRevokes)
    assert type(app.control).__name__ == "Told"
    assert app.control.revoke("a") == [{"w1": {"ok": "told"}}]


def test_hardening_again_does_not_wrap_again(app) -> None:
    before = app.control
    harden(app)

    assert app.control is before
    assert [cls.__name__ for cls in type(app.control).__mro__].count("KeepsRevokes") == 1


def test_a_control_that_was_made_before_is_replaced(settings) -> None:
    settings.HARDENING = {**settings.HARDENING, **MEMORY}
    with no_hardening():
        app = make_app()
        assert type(app.control) is Control
        harden(app)

    assert isinstance(app.control, KeepsRevokes)
    assert app.control.inspect().app is app


def test_in_report_mode_nothing_is_changed(settings) -> None:
    settings.HARDENING = {**settings.HARDENING, "MODE": "report"}
    app = hardened_app()

    assert type(app.control) is Control
    assert "hardening.revoked.step.Revokes" not in app.steps["consumer"]


def test_a_store_that_is_down_keeps_nobody_from_revoking(settings, caplog) -> None:
    settings.HARDENING = {**settings.HARDENING, **broken_store_settings()}
    told: list[str] = []

    class Deaf(Control):
        def broadcast(self, command: Any, *args: Any, **kwargs: Any) -> Any:
            told.append(command)

    with_control(Deaf).control.revoke(["a", "b"])

    assert told == ["revoke"]
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "the revoke of a, b could not be kept" in record.getMessage()


@pytest.mark.parametrize(
    ("broker", "store", "cls"),
    [
        ("redis://127.0.0.1:1", None, RedisRevoked),
        ("amqp://127.0.0.1:1", None, DatabaseRevoked),
        ("amqp://127.0.0.1:1", "hardening.stores.memory.MemoryStore", MemoryRevoked),
        ("redis://127.0.0.1:1", "hardening.stores.database.DatabaseStore", DatabaseRevoked),
        ("redis://127.0.0.1:1", "tests.unit.test_revoked_control.OwnStore", RedisRevoked),
        ("amqp://127.0.0.1:1", "tests.unit.test_revoked_control.OwnStore", DatabaseRevoked),
    ],
)
def test_revokes_lie_where_the_shared_state_lies(settings, broker, store, cls) -> None:
    settings.HARDENING = {"STORE": {"BACKEND": store}} if store else {}
    app = Celery("choosing", broker=broker, set_as_current=False)

    assert type(chosen_revoked(app)) is cls
    assert chosen_revoked(app) is chosen_revoked(app)


def test_the_address_of_the_store_is_the_address_of_the_revokes(settings) -> None:
    url = "redis://127.0.0.1:1/7"
    settings.HARDENING = {"STORE": {"BACKEND": "hardening.stores.redis.RedisStore", "OPTIONS": {"url": url}}}
    found: Any = chosen_revoked(Celery("choosing", broker="amqp://127.0.0.1:1", set_as_current=False))
    assert found._url == url

    settings.HARDENING = {
        "STORE": {"BACKEND": "hardening.stores.database.DatabaseStore", "OPTIONS": {"database": "other"}}
    }
    found = chosen_revoked(Celery("choosing", broker="redis://127.0.0.1:1", set_as_current=False))
    assert found._alias() == "other"


class OwnStore:
    """A store of a project's own."""

    def read(self, key: str) -> Any: ...

    def swap(self, key: str, *, version: int, value: Any, ttl_seconds: float) -> bool:
        return False

    def close(self) -> None: ...


@pytest.fixture
def panel(monkeypatch) -> dict[str, Any]:
    """The registry of commands with ours around ones that only remember."""
    called: list[Any] = []

    def command(state: Any, **arguments: Any) -> dict[str, Any]:
        called.append(arguments)
        return {"ok": "done"}

    commands = dict.fromkeys(COMMANDS, command)
    monkeypatch.setattr(Panel, "data", dict(commands))
    return {"called": called}


def test_a_worker_keeps_what_it_hears_and_passes_it_on(app, panel) -> None:
    Revokes(SimpleNamespace(app=app))
    Revokes(SimpleNamespace(app=app))

    answer = Panel.data["revoke"](SimpleNamespace(app=app), task_id="a", terminate=True)
    Panel.data["terminate"](SimpleNamespace(app=app), task_id=["b"], signal="KILL")
    Panel.data["revoke_by_stamped_headers"](SimpleNamespace(app=app), headers={"h": "x"})

    assert answer == {"ok": "done"}
    assert kept(app) == {Revoke("a"), Revoke("b"), Revoke("x", "h")}
    assert panel["called"][0] == {"task_id": "a", "terminate": True}
    assert len(panel["called"]) == 3


def test_a_worker_looks_with_each_connection_and_every_few_seconds_until_it_is_cut(app, panel) -> None:
    asked: list[tuple[float, Any]] = []
    entry = SimpleNamespace(cancelled=False)
    entry.cancel = lambda: setattr(entry, "cancelled", True)

    def call_repeatedly(seconds: float, function: Any) -> Any:
        asked.append((seconds, function))
        return entry

    consumer = SimpleNamespace(app=app, timer=SimpleNamespace(call_repeatedly=call_repeatedly))
    chosen_revoked(app).add([Revoke("a")], ttl_seconds=60, most=10)
    step = Revokes(consumer)

    step.start(consumer)
    assert "a" in worker_state.revoked
    chosen_revoked(app).add([Revoke("b")], ttl_seconds=60, most=10)
    ((seconds, look),) = asked
    look()
    assert seconds == LOOK_EVERY_SECONDS
    assert "b" in worker_state.revoked

    step.stop(consumer)
    step.stop(consumer)
    assert entry.cancelled
    worker_state.revoked.clear()


def test_a_worker_of_another_app_in_this_process_keeps_nothing(app, panel) -> None:
    Revokes(SimpleNamespace(app=app))
    with no_hardening():
        other = make_app()

    Panel.data["revoke"](SimpleNamespace(app=other), task_id="a")

    assert len(panel["called"]) == 1
    assert kept(app) == set()
