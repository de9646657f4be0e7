"""Nothing is sent where the project would be connected to anything that the kit did not start."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery import Celery

from hardening.chaos.overlay import caches, databases, hardening_settings
from hardening.chaos.preflight import refusals
from hardening.chaos.witness import PORT_ENV, refuse_another_broker

SAFE = {
    "settings": "hardening.chaos.settings",
    "broker_read": ["127.0.0.1", 20_000],
    "broker_write": ["127.0.0.1", 20_000],
    "ssl": False,
    "results": "redis://127.0.0.1:20001/1",
    "databases": {
        "default": ["django.db.backends.postgresql", "127.0.0.1", "20002", "chaos_default"],
        "files": ["django.db.backends.sqlite3", "", "", "/tmp/chaos/files.sqlite3"],
    },
}


def refused(**changed) -> list[str]:
    return refusals(
        {**SAFE, **changed}, broker_port=20_000, ports=[20_000, 20_001, 20_002], directory="/tmp/chaos"
    )


def test_the_kits_own_servers_are_accepted() -> None:
    assert refused() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": "shop.settings"},
        {"broker_read": ["broker.example", 20_000]},
        {"broker_write": ["127.0.0.1", 6379]},
        {"broker_write": ["10.0.0.1", 20_000]},
        {"ssl": True},
        {"results": "redis://cache.example:20001/1"},
        {"results": "redis://127.0.0.1:6379/1"},
        {"results": "db+postgresql://db.example/results"},
        {"databases": {"default": ["django.db.backends.postgresql", "db.example", "5432", "shop"]}},
        {"databases": {"default": ["django.db.backends.postgresql", "127.0.0.1", "5432", "shop"]}},
        {"databases": {"default": ["django.db.backends.sqlite3", "", "", "/srv/shop/db.sqlite3"]}},
        {"databases": {"default": ["django.db.backends.postgresql", "", "", "shop"]}},
    ],
    ids=lambda changed: f"{next(iter(changed))}-{next(iter(changed.values()))}"[:40],
)
def test_anything_else_is_refused(changed: dict) -> None:
    [reason] = refused(**changed)

    assert reason


def test_every_database_and_cache_of_the_project_is_moved() -> None:
    moved = databases({"default": {"HOST": "db.example"}, "reports": {"HOST": "db.example"}}, {"postgres": 1})

    assert {name: entry["HOST"] for name, entry in moved.items()} == {
        "default": "127.0.0.1",
        "reports": "127.0.0.1",
    }
    assert {entry["LOCATION"] for entry in caches({"far": {}}, "redis://127.0.0.1:1/2").values()} == {
        "redis://127.0.0.1:1/2"
    }


def test_stores_that_the_project_names_are_not_used() -> None:
    own = {
        "STORE": {"BACKEND": "a", "OPTIONS": {"url": "redis://far"}},
        "DEAD_LETTER_SINK": {"BACKEND": "b"},
        "DELAYED": {"STORE": {"BACKEND": "c"}, "HORIZON": "1 h"},
        "RELEASE": "7",
    }

    kept = hardening_settings(own, as_configured=True, report=False)

    assert kept == {"DELAYED": {"HORIZON": "1 h"}, "RELEASE": "7"}


def test_plain_means_that_hardening_changes_nothing() -> None:
    assert hardening_settings({}, as_configured=False, report=True)["MODE"] == "report"


@pytest.mark.parametrize(
    "url", ["redis://broker.example:20000/0", "redis://127.0.0.1:6379/0", "amqp://guest@10.0.0.1:20000//"]
)
def test_a_worker_of_another_broker_ends_before_it_connects(url, monkeypatch) -> None:
    monkeypatch.setenv(PORT_ENV, "20000")

    with pytest.raises(SystemExit):
        refuse_another_broker(SimpleNamespace(app=Celery("other", broker=url, set_as_current=False)))


def test_a_worker_of_the_kits_broker_starts(monkeypatch) -> None:
    monkeypatch.setenv(PORT_ENV, "20000")
    app = Celery("ours", broker="redis://127.0.0.1:20000/0", set_as_current=False)

    refuse_another_broker(SimpleNamespace(app=app))
