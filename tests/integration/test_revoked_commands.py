"""The hardening_revoked command: what it prints, changes, and its exit codes."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from celery import Celery
from django.core.management import CommandError, call_command

from hardening.revoked.rules import Revoke
from hardening.revoked.store import chosen_revoked
from tests.helpers.traffic import broken_store_settings

COMMAND = "hardening.management.commands.hardening_revoked"


@pytest.fixture
def app(monkeypatch, settings) -> Celery:
    settings.HARDENING = {"STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"}}
    app = Celery("revoking", broker="memory://", set_as_current=False)
    monkeypatch.setattr(f"{COMMAND}.celery_app", lambda: app)
    return app


def run(*args: str) -> Any:
    out = StringIO()
    call_command("hardening_revoked", *args, stdout=out, stderr=StringIO())
    return json.loads(out.getvalue()) if "--json" in args else out.getvalue()


def revoked(app: Celery) -> set[Revoke]:
    return {mark.revoke for mark in chosen_revoked(app).changes().revoked}


def test_nothing_is_revoked_at_first(app) -> None:
    assert run("list") == "0 revoked\n"
    assert run("list", "--json")["revoked"] == []


def test_what_is_added_is_revoked_and_listed(app) -> None:
    assert run("add", "a", "b", "--dry-run") == "2 would be revoked\n"
    assert revoked(app) == set()

    assert run("add", "a", "b", "a") == "2 revoked\n"

    assert revoked(app) == {Revoke("a"), Revoke("b")}
    assert "a  " in run("list")
    assert "remembered for another 7 d" in run("list")
    (one, two) = run("list", "--json")["revoked"]
    assert {one["id"], two["id"]} == {"a", "b"}
    assert one["until"] - one["at"] == pytest.approx(7 * 86400)


def test_what_is_taken_back_is_no_longer_revoked(app, caplog) -> None:
    stamps = [Revoke("x", "h"), Revoke(7, "h")]
    chosen_revoked(app).add([Revoke("a"), Revoke("b"), *stamps], ttl_seconds=60, most=10)

    assert run("forget", "a", "--dry-run") == "1 would be forgotten\n"
    assert run("forget", "a", "--stamp", "h=7", "--json") == {
        "forgotten": [{"id": "a"}, {"header": "h", "stamp": 7}],
        "not_revoked": [],
        "dry_run": False,
    }

    assert revoked(app) == {Revoke("b"), Revoke("x", "h")}
    assert "the revoke of a was taken back" in caplog.text


def test_one_that_is_not_revoked_is_an_error_and_the_others_are_forgotten(app) -> None:
    chosen_revoked(app).add([Revoke("a")], ttl_seconds=60, most=10)

    with pytest.raises(CommandError, match="not revoked, as far as the store knows: A, h=x"):
        run("forget", "a", "A", "--stamp", "h=x")

    assert revoked(app) == set()
    # A worker may have it from a broadcast that could not be kept.
    assert Revoke("A") in chosen_revoked(app).changes().forgotten


@pytest.mark.parametrize("wrong", [["forget"], ["forget", "--stamp", "h"], ["add"], []])
def test_a_command_that_says_too_little_is_refused(app, wrong) -> None:
    with pytest.raises(CommandError):
        run(*wrong)


@pytest.mark.parametrize("command", [["list"], ["add", "a"], ["forget", "a"]])
def test_a_store_that_does_not_answer_is_said(app, settings, command) -> None:
    settings.HARDENING = broken_store_settings()

    with pytest.raises(CommandError, match="keeps what is revoked and cannot be used now"):
        run(*command)
