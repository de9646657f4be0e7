"""Outages of dependencies and retry budgets, over all workers: asks and tells the shared store.

Which way it fails: admit. A store that does not answer admits every task and every retry, says so
once in a while, and is left alone for a few seconds. Only an outage that a process read of before goes
on in it, without probes, for the longest wait at most: one time-out must not let a herd loose on what
is down. What a process noted and could not write is lost: a dependency is probed a little later, a
budget is a little too generous.

What a start costs: nothing, unless a task, a rule or a message names a dependency; then one read of
the store each second and process.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from hardening.conf import load_settings
from hardening.core.identity import DEPENDENCY_HEADER
from hardening.core.loading import BackendError
from hardening.effective import transport_of
from hardening.store import StateStore, StoreBusy, StoreUnavailable, chosen_store, update

from . import budget, outage
from .options import options_of, rules_name_dependencies

__all__ = ["BUDGET_KEY", "OUTAGES_KEY", "Held", "Traffic", "traffic_for"]

logger = logging.getLogger("hardening")

OUTAGES_KEY = "outages"
BUDGET_KEY = "budget:"
SNAPSHOT_SECONDS = 1.0
LEFT_ALONE_SECONDS = 5.0
"""How long a store that did not answer is left alone; doubled each time, up to LEFT_ALONE_LONGEST."""

LEFT_ALONE_LONGEST = 60.0
MOST_TAGS = 40
"""Dependencies that are followed at one time: all are in one document, whose size is bounded."""

_MOST_CHARS = 60_000

LONGEST_HOP_SECONDS = 600.0
MOST_REMEMBERED = 1000
MOST_OF_A_TAG = 100
"""Characters of a tag that count: a project's function may answer anything."""

BUDGET_TTL_SECONDS = 24 * 3600.0
TTL_SECONDS = 7 * 24 * 3600.0

Outages = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A dependency is down: put the task back for so many seconds."""

    dependency: str
    seconds: float


class Traffic:
    """What one process knows of dependencies and budgets. Used by many greenlets or threads at once."""

    def __init__(
        self,
        app: Celery,
        *,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._app = app
        self._settings = load_settings()[0]
        self._outage_rules = self._settings.outage_rules
        self._budget_rules = self._settings.budget_rules
        self._store = store
        self._clock = clock
        self._rng = rng
        self._snapshot: Outages = {}
        self._read_at = -SNAPSHOT_SECONDS
        self._known_until = 0.0
        self._down_until = 0.0
        self._left_alone = LEFT_ALONE_SECONDS
        self._starts: dict[str, int] = defaultdict(int)
        self._succeeded_at: dict[str, float] = {}

    # Dependencies

    def admit(self, execution: Any) -> Held | None:
        """None: the body may run."""
        execution.concerned = self._may_concern(execution)
        held = self._held(execution) if execution.concerned else None
        if held is None:
            self._starts[execution.task.name] += 1
        return held

    def _held(self, execution: Any) -> Held | None:
        tags = self._tags(execution)
        if not any(outage.is_open(self._snapshot.get(tag)) for tag in tags):
            return None
        for tag in tags:
            answer = self._change(tag, lambda doc, now: outage.admit(doc, prober=execution.task_id, now=now))
            if answer is None and outage.is_open(self._snapshot.get(tag)):
                answer = outage.blind_wait(self._snapshot[tag])
            if isinstance(answer, outage.Wait):
                self.said_nothing(execution)
                return Held(dependency=tag, seconds=outage.park_delay(answer, self._rng))
            if isinstance(answer, outage.Probe):
                execution.probes.append(tag)
        return None

    def succeeded(self, execution: Any) -> None:
        """The body ended well: what it depends on works."""
        if not execution.concerned:
            return
        for tag in self._tags(execution):
            if len(self._succeeded_at) >= MOST_REMEMBERED:  # Messages may bring tags of any kind.
                self._succeeded_at.clear()
            self._succeeded_at[tag] = self._clock()
            if self._snapshot.get(tag):
                self._snapshot.pop(tag, None)
                event = self._change(tag, lambda doc, now: outage.succeeded(doc, now=now))
                self._announce(tag, event)

    def failed(self, tag: str, execution: Any) -> float | None:
        """A dependency failed. None: go on as the policy says; else: put the task back for so long."""
        success = self._succeeded_at.get(tag)
        age = None if success is None else self._clock() - success

        def change(doc: Any, now: float) -> Any:
            after, event = outage.failed(
                doc,
                task=execution.task.name,
                prober=execution.task_id,
                success_age=age,
                now=now,
                rules=self._outage_rules,
            )
            return after, (event, outage.wait_of(after, now))

        answer = self._change(tag, change)
        if tag in execution.probes:
            execution.probes.remove(tag)
        self.said_nothing(execution)
        if answer is None:
            return None
        event, wait = answer
        self._announce(tag, event)
        return None if wait is None else outage.park_delay(wait, self._rng)

    def said_nothing(self, execution: Any) -> None:
        """The execution ended without a word on what it probed: the next one may probe at once."""
        for tag in execution.probes:
            self._change(
                tag, lambda doc, now: (outage.inconclusive(doc, prober=execution.task_id, now=now), None)
            )
        execution.probes.clear()

    @cached_property
    def longest_hop(self) -> float:
        """The most seconds that a message may wait in a worker: on Redis half of what makes it visible
        again, on RabbitMQ well below the half hour after which it ends the channel."""
        options = self._app.conf.broker_transport_options or {}
        visible = options.get("visibility_timeout", 3600) if transport_of(self._app) == "redis" else 3600
        return float(max(1.0, min(LONGEST_HOP_SECONDS, visible / 2)))

    # Budgets

    def withdraw(self, task_name: str) -> float:
        """Take a retry out of the task's budget; the seconds until the budget has room for it."""
        starts = self._starts.pop(task_name, 0)

        def change(doc: Any, now: float) -> Any:
            return budget.withdraw(doc, starts=starts, now=now, budget=self._budget_rules)

        return self._asked(
            lambda store: update(store, BUDGET_KEY + task_name, change, ttl_seconds=BUDGET_TTL_SECONDS), 0.0
        )

    # The store

    def _may_concern(self, execution: Any) -> bool:
        return bool(
            options_of(execution.task).names_dependencies
            or execution.request.__dict__.get(DEPENDENCY_HEADER)
            or rules_name_dependencies()
        )

    def _tags(self, execution: Any) -> list[str]:
        if self._clock() - self._read_at >= SNAPSHOT_SECONDS:
            self._read_at = self._clock()
            read: Outages | None = self._asked(lambda store: store.read(OUTAGES_KEY).value or {}, None)
            if read is not None:
                self._snapshot = read
                self._known_until = self._read_at + self._outage_rules.longest_wait
            elif self._read_at >= self._known_until:
                self._snapshot = {}
        name = execution.task.name
        tags = [options_of(execution.task).dependency, getattr(execution.request, DEPENDENCY_HEADER, None)]
        tags += [tag for tag, doc in list(self._snapshot.items()) if name in outage.tasks_of(doc)]
        return list(dict.fromkeys(tag[:MOST_OF_A_TAG] for tag in tags if isinstance(tag, str) and tag))

    def _change(self, tag: str, change: Callable[[Any, float], tuple[Any, T]]) -> T | None:
        def on_all(value: Outages | None, now: float) -> tuple[Outages | None, T]:
            outages = dict(value or {})
            after, answer = change(outages.get(tag), now)
            if after is None:
                outages.pop(tag, None)
            else:
                outages[tag] = after
            _bound(outages, tag)
            self._snapshot = outages
            return outages or None, answer

        return self._asked(lambda store: update(store, OUTAGES_KEY, on_all, ttl_seconds=TTL_SECONDS), None)

    def _asked(self, ask: Callable[[StateStore], T], otherwise: T) -> T:
        if self._clock() < self._down_until:
            return otherwise
        try:
            if self._store is None:
                self._store = chosen_store(self._app, self._settings)
            answer = ask(self._store)
        # Whatever the store or a test framework in front of it raises: admit, and say so.
        except Exception as exc:
            if isinstance(exc, SoftTimeLimitExceeded):
                raise
            if isinstance(exc, (StoreUnavailable, BackendError)) and not isinstance(exc, StoreBusy):
                self._down_until = self._clock() + self._left_alone
                self._left_alone = min(self._left_alone * 2, LEFT_ALONE_LONGEST)
            logger.warning("outages and retry budgets are unknown for now, everything is admitted: %s", exc)
            return otherwise
        self._left_alone = LEFT_ALONE_SECONDS
        return answer

    def _announce(self, tag: str, event: Any) -> None:
        if event:
            logger.warning("dependency %s: %s", tag, event, extra={"dependency": tag, "event": str(event)})


def _bound(outages: Outages, changed: str) -> None:
    """Make room: runs that are no outage go first, the oldest of them before others."""
    others = [tag for tag in outages if tag != changed]
    others.sort(key=lambda tag: (outage.is_open(outages[tag]), outage.failed_at(outages[tag])))
    while others and (len(outages) > MOST_TAGS or len(json.dumps(outages)) > _MOST_CHARS):
        del outages[others.pop(0)]


_all: WeakKeyDictionary[Celery, Traffic] = WeakKeyDictionary()


def traffic_for(app: Celery) -> Traffic:
    """The traffic of an app in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = Traffic(app)
    return found
