"""Puts outages, runs of failures and budgets into a store, as workers would."""

from __future__ import annotations

from typing import Any

from hardening.retries import budget, outage
from hardening.retries.traffic import BUDGET_KEY, OUTAGES_KEY
from hardening.store import StateStore, update

__all__ = ["broken_store_settings", "documents", "fail", "probing", "spend"]


def fail(store: StateStore, tag: str, times: int, *, task: str = "shop.charge") -> None:
    """So many failures in a row of a dependency; 20 are an outage."""

    def change(value: Any, now: float) -> tuple[Any, None]:
        value = dict(value or {})
        for _ in range(times):
            value[tag], _event = outage.failed(
                value.get(tag), task=task, prober=None, success_age=None, now=now, rules=outage.Outage()
            )
        return value, None

    update(store, OUTAGES_KEY, change, ttl_seconds=60)


def probing(store: StateStore, tag: str, task_id: str) -> None:
    """A task holds the probe of an outage."""

    def change(value: Any, now: float) -> tuple[Any, None]:
        due = outage.view(value[tag]).next_probe_at
        # Asked when the probe is due; the lease then counts from there.
        value[tag], answer = outage.admit(value[tag], prober=task_id, now=due)
        assert isinstance(answer, outage.Probe)
        return value, None

    update(store, OUTAGES_KEY, change, ttl_seconds=60)


def spend(store: StateStore, task: str, retries: int) -> None:
    """So many retries of a task at once; 100 are saved up."""

    def change(value: Any, now: float) -> tuple[Any, None]:
        for _ in range(retries):
            value, _wait = budget.withdraw(value, starts=0, now=now, budget=budget.Budget())
        return value, None

    update(store, BUDGET_KEY + task, change, ttl_seconds=60)


def documents(store: StateStore) -> dict[str, Any]:
    """The outages and runs, by dependency."""
    return store.read(OUTAGES_KEY).value or {}


def broken_store_settings() -> dict[str, Any]:
    """HARDENING with a store that refuses each connection at once."""
    return {
        "STORE": {
            "BACKEND": "hardening.stores.redis.RedisStore",
            "OPTIONS": {"url": "redis://127.0.0.1:1/0"},
        }
    }
