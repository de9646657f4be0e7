"""Outages and retry budgets as the shared store has them, for people; and what an operator may change.

That the store does not answer is one of the things to be shown, no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any

from celery import Celery

from .conf import load_settings
from .core.loading import BackendError
from .retries import budget, outage
from .retries.options import is_celerys_own
from .retries.traffic import BUDGET_KEY, OUTAGES_KEY, TTL_SECONDS
from .store import StateStore, chosen_store, update

__all__ = [
    "MOST_BUDGETS",
    "BudgetState",
    "Changed",
    "OutageState",
    "TrafficView",
    "close_outage",
    "probe_now",
    "traffic_view",
]

MOST_BUDGETS = 300
"""Budgets that are read: one question to the store for each task."""

PATIENCE_SECONDS = 5.0
"""After so long no more budgets are asked for: a store may answer and be slow."""

_OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageState:
    """A dependency with failures in a row; `view.open_since` is None as long as they are no outage."""

    dependency: str
    view: outage.OutageView
    prober: str | None
    """The task that probes now: one whose lease is over is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A task that retried within the last day. `view.wait` above 0: its retries are delayed."""

    task: str
    view: budget.BudgetView

    @property
    def owed(self) -> int:
        """How many retries must be paid for before the next one is due: its own token included."""
        return max(0, ceil(1.0 - self.view.tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficView:
    """`problem` is "" where the store answered; else what is known may be incomplete.

    `now` is the store's time. `not_read` counts the tasks whose budgets were not asked for.
    """

    store: str
    problem: str = ""
    now: float = 0.0
    outages: tuple[OutageState, ...] = ()
    runs: tuple[OutageState, ...] = ()
    budgets: tuple[BudgetState, ...] = ()
    not_read: int = 0


class Changed(StrEnum):
    """What became of an operator's wish."""

    DONE = "done"
    NO_OUTAGE = "no_outage"
    BEING_PROBED = "being_probed"


def traffic_view(app: Celery, *, clock: Callable[[], float] = time.monotonic) -> TrafficView:
    """What is known of an app's dependencies and budgets. Changes nothing, raises nothing of the store's."""
    settings = load_settings()[0]
    try:
        store = chosen_store(app, settings)
    except BackendError as exc:
        return TrafficView(store="unusable", problem=str(exc))
    name = f"{type(store).__module__}.{type(store).__qualname__}"
    try:
        entry = store.read(OUTAGES_KEY)
    # A project's own store may raise anything, and this is for the hour when things are broken.
    except Exception as exc:
        return TrafficView(store=name, problem=_text(exc))
    known = [_outage(tag, document, entry.now) for tag, document in sorted((entry.value or {}).items())]
    tasks = sorted(name for name, task in app.tasks.items() if not is_celerys_own(task))
    budgets, asked, problem = _budgets(store, tasks[:MOST_BUDGETS], settings.budget_rules, clock)
    return TrafficView(
        store=name,
        problem=problem,
        now=entry.now,
        outages=tuple(each for each in known if each.view.open_since is not None),
        runs=tuple(each for each in known if each.view.open_since is None and each.view.failures),
        budgets=tuple(budgets),
        not_read=len(tasks) - asked,
    )


def probe_now(app: Celery, dependency: str) -> Changed:
    """Let the next task that asks probe at once, unless one is probing. Raises HardeningError."""

    def change(document: Any, now: float) -> tuple[Any, Changed]:
        known = outage.view(document)
        if known.open_since is None:
            return document, Changed.NO_OUTAGE
        taken, answer = outage.admit(document, prober=_OPERATOR, now=max(now, known.next_probe_at))
        if not isinstance(answer, outage.Probe):
            return document, Changed.BEING_PROBED
        return outage.inconclusive(taken, prober=_OPERATOR, now=now), Changed.DONE

    return _changed(app, dependency, change)


def close_outage(app: Celery, dependency: str) -> Changed:
    """End an outage: everyone may try again, and the count begins anew. Raises HardeningError."""

    def change(document: Any, now: float) -> tuple[Any, Changed]:
        if not outage.is_open(document):
            return document, Changed.NO_OUTAGE
        return outage.succeeded(document, now=now)[0], Changed.DONE

    return _changed(app, dependency, change)


def _changed(app: Celery, dependency: str, change: Callable[[Any, float], tuple[Any, Changed]]) -> Changed:
    def on_all(value: dict[str, Any] | None, now: float) -> tuple[dict[str, Any] | None, Changed]:
        documents = dict(value or {})
        after, answer = change(documents.pop(dependency, None), now)
        if answer is not Changed.DONE:
            return value, answer
        if after is not None:
            documents[dependency] = after
        return documents or None, answer

    store = chosen_store(app, load_settings()[0])
    return update(store, OUTAGES_KEY, on_all, ttl_seconds=TTL_SECONDS)


def _outage(tag: str, document: Any, now: float) -> OutageState:
    view = outage.view(document)
    return OutageState(
        dependency=tag, view=view, prober=view.prober if view.prober and now < view.prober_until else None
    )


def _budgets(
    store: StateStore, tasks: Sequence[str], rules: budget.Budget, clock: Callable[[], float]
) -> tuple[list[BudgetState], int, str]:
    """The budgets that are in use, how many tasks were asked for, and what went wrong."""
    found: list[BudgetState] = []
    until = clock() + PATIENCE_SECONDS
    for asked, task in enumerate(tasks):
        if clock() > until:
            return found, asked, ""
        try:
            entry = store.read(BUDGET_KEY + task)
        except Exception as exc:  # As above.
            return found, asked, _text(exc)
        if entry.value is not None:
            found.append(BudgetState(task=task, view=budget.view(entry.value, entry.now, rules)))
    return found, len(tasks), ""


def _text(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
