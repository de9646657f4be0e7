"""hardening_delayed: what it lists, counts and cancels, and its exit codes."""

from __future__ import annotations

import base64
import json
import sys
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from hardening.delayed.entry import Fate
from hardening.store import StoreUnavailable
from tests.helpers.delayed_tasks import BROKEN, MEMORY, delay, delayed_store_of
from tests.helpers.hardened_apps import EVENTS, hardened_app

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("isolated")]


@pytest.fixture
def app(settings, monkeypatch):
    return project(settings, monkeypatch, MEMORY)


def project(settings, monkeypatch, hardening: dict[str, Any]) -> Any:
    settings.HARDENING = {**hardening, "APP": f"{__name__}.project_app"}
    app = hardened_app("project", task_time_limit=30)
    monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
    EVENTS.clear()
    return app


def run(*args: str) -> str:
    out = StringIO()
    call_command("hardening_delayed", *args, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_it_lists_what_is_parked_by_due_time(app) -> None:
    store = delayed_store_of(app)
    late, soon = delay(store, "late", seconds=200, attempt=2), delay(store, "soon", seconds=100)

    listed = json.loads(run("list", "--json"))

    assert [each["id"] for each in listed] == [soon.id, late.id]
    assert listed[1] | {"due": "", "parked_at": ""} == {
        "id": late.id,
        "task_id": "late",
        "task": "shop.charge",
        "queue": "payments",
        "attempt": 2,
        "due": "",
        "parked_at": "",
    }
    assert f"{soon.id}  due " in run("list", "--limit", "1")
    assert late.id not in run("list", "--limit", "1")
    assert late.id in run("list", "--offset", "1")
    assert [each["id"] for each in json.loads(run("list", "--task-id", "late", "--json"))] == [late.id]


def test_it_counts(app) -> None:
    delay(delayed_store_of(app), "one")

    assert run("count") == "1\n"
    assert json.loads(run("count", "--json")) == {"count": 1}


def test_it_cancels_by_task_id_or_own_id_and_tells_the_result_backend(app) -> None:
    store = delayed_store_of(app)
    one, again, other = delay(store, "one"), delay(store, "one"), delay(store, "other")

    out = json.loads(run("cancel", "one", other.id, "--json"))

    assert {each["id"] for each in out["cancelled"]} == {one.id, again.id, other.id}
    assert (out["missing"], out["results_not_written"]) == ([], "")
    assert store.count() == 0
    assert store.fate(one.id) is Fate.CANCELLED
    for task_id in ("one", "other"):
        assert app.AsyncResult(task_id).state == "REVOKED"
    records = json.loads(run("cancelled", "--json"))
    assert {each["id"] for each in records} == {one.id, again.id, other.id}
    assert records[0]["by"].startswith("command line")
    assert "shop.charge[other]" in run("cancelled")


def test_a_dry_run_changes_nothing(app) -> None:
    store = delayed_store_of(app)
    one = delay(store, "one")

    assert f"would be cancelled: {one.id}" in run("cancel", "one", "--dry-run")

    assert store.fate(one.id) is Fate.PARKED
    assert EVENTS == []


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_is_not_there_is_said_by_the_exit_code_and_the_rest_is_done(app, more) -> None:
    store = delayed_store_of(app)
    delay(store, "one")

    with pytest.raises(CommandError, match=r"not parked.*nobody") as caught:
        run("cancel", "nobody", "one", *more)

    assert caught.value.returncode == 1
    assert store.count() == (1 if more else 0)


def test_with_the_result_backend_down_it_is_cancelled_and_that_is_said(app) -> None:
    app.backend.down = True
    store = delayed_store_of(app)
    delay(store, "one")
    delay(store, "two")

    out = json.loads(run("cancel", "one", "two", "--json"))

    assert len(out["cancelled"]) == 2
    assert "no result backend" in out["results_not_written"]
    assert store.count() == 0


def test_the_chord_that_waits_for_it_is_told(app, monkeypatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(
        type(app.backend), "on_chord_part_return", lambda self, request, state, result: told.append(request)
    )
    body = json.dumps([[], {}, {"chord": {"task": "sum"}}]).encode()
    envelope = {
        "headers": {"id": "one", "task": "shop.charge", "group": "g"},
        "body": base64.b64encode(body).decode(),
        "properties": {"body_encoding": "base64"},
    }
    delay(delayed_store_of(app), "one", list_key="payments", message=json.dumps(envelope))

    run("cancel", "one")

    assert [request.chord for request in told] == [{"task": "sum"}]


def test_a_task_without_a_result_gets_none(app) -> None:
    envelope = {"headers": {"id": "one", "task": "shop.charge", "ignore_result": True}, "properties": {}}
    delay(delayed_store_of(app), "one", list_key="payments", message=json.dumps(envelope))

    run("cancel", "one")

    assert EVENTS == []


def test_a_store_that_does_not_answer_is_an_error_with_its_reason(settings, monkeypatch) -> None:
    project(settings, monkeypatch, BROKEN)

    for args in (("list",), ("count",), ("cancel", "x"), ("cancel", "x", "--dry-run"), ("cancelled",)):
        with pytest.raises(CommandError, match=r"no_such_database.*delayed tasks"):
            run(*args)


def test_a_store_that_goes_away_half_way_leaves_a_record_of_what_was_done(app, monkeypatch) -> None:
    store = delayed_store_of(app)
    delay(store, "one")
    delay(store, "two")
    real = store.find

    def find(key: str) -> Any:
        if key == "two":
            raise StoreUnavailable("gone")
        return real(key)

    monkeypatch.setattr(store, "find", find)

    with pytest.raises(CommandError, match="gone"):
        run("cancel", "one", "two")

    assert [each.task_id for each in store.cancellations(limit=5)] == ["one"]
    assert app.AsyncResult("one").state == "REVOKED"
