"""Outage mode of one dependency: after many failures in a row, one attempt at a time asks if it is back.

The machine is a document of plain values in a store shared by all workers; each function takes it and
returns the one to write back by compare-and-set. Times are the store's clock.

    normal   None, or a run of failures that is too short
    open     since `open_since`; the next probe may start at `next_probe_at`, `wait` grows with each
             failed probe; `prober` holds the probe until `prober_until`

Everyone else is parked while it is open, without using an attempt. Any success ends it.

If a process dies
- holding the probe, before or during the attempt or before it reports: its lease runs out, and the next
  to ask gets the probe. The broker delivers its message again; if that asks first, it holds the probe
  on under the same name.
- after a failed attempt, before `failed` is written: the run is one short. Afterwards, before its retry
  is published: its message comes again and may count twice. Both move the start of an outage by one.
- after a successful attempt, before `succeeded` is written: the outage lasts until the next probe.
- after `admit` said Wait, before it is parked: its message comes again and asks again.
Nothing is lost at any of them: the document holds no work, it only says when to try.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

__all__ = [
    "Admitted",
    "Event",
    "Outage",
    "OutageView",
    "Probe",
    "Wait",
    "admit",
    "blind_wait",
    "failed",
    "failed_at",
    "inconclusive",
    "is_open",
    "park_delay",
    "succeeded",
    "tasks_of",
    "view",
    "wait_of",
]

Document = Mapping[str, Any]

_VERSION = 1
_TASKS = 12  # Names kept: all dependencies share one document of bounded size.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """When an outage is taken for one, and how often it is probed. Durations are seconds.

    `failures` in a row open it; `math.inf` turns outage mode off. The first probe comes after
    `first_wait`; each that fails doubles the wait up to `longest_wait`. A probe that says nothing for
    `probe_lease` is given to another.
    """

    failures: float = 20
    first_wait: float = 5.0
    longest_wait: float = 60.0
    probe_lease: float = 60.0

    def __post_init__(self) -> None:
        if not self.failures >= 1:
            raise ValueError(f"failures is {self.failures!r}: give a number from 1 on")
        for name in ("first_wait", "longest_wait", "probe_lease"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}: give a finite duration above 0")
        if self.longest_wait < self.first_wait:
            raise ValueError(
                f"longest_wait {self.longest_wait:g} s is below first_wait {self.first_wait:g} s"
            )


class Event(StrEnum):
    """What an operator wants to be told of."""

    OPENED = "opened"
    STILL_DOWN = "still_down"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Admitted:
    """Run: there is no outage."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Run as the probe, the only one; report how it ended. Its lease ends at `until`."""

    until: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Do not run: park for `park_delay(wait, rng)`, which is `seconds` at least and `spread` more at most."""

    seconds: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageView:
    """The machine's state, for people. `open_since` is None while there is no outage."""

    failures: int = 0
    tasks: tuple[str, ...] = ()
    open_since: float | None = None
    wait: float = 0.0
    next_probe_at: float = 0.0
    prober: str | None = None
    prober_until: float = 0.0


@dataclass(frozen=True, slots=True)
class _Open:
    since: float
    wait: float
    next_probe_at: float
    lease: float
    prober: str | None = None
    prober_until: float = 0.0


@dataclass(frozen=True, slots=True)
class _State:
    failures: int = 0
    tasks: tuple[str, ...] = field(default=())
    open: _Open | None = None
    failed_at: float = 0.0


def failed(
    document: Document | None,
    *,
    task: str,
    prober: str | None,
    success_age: float | None,
    now: float,
    rules: Outage,
) -> tuple[dict[str, Any], Event | None]:
    """An attempt of `task` failed by this dependency. `prober` names the attempt as `admit` was told.

    `success_age` are the seconds since the reporter last saw a success, None for never: one since the
    latest failure begins a new run. While an outage is open that is too old to end it, and only the
    holder of the probe lengthens the wait.
    """
    state = _read(document)
    if state.open is not None:
        counted = replace(state, failures=state.failures + 1, tasks=_with(state.tasks, task))
        if prober is None or prober != state.open.prober:
            return _written(counted), None
        wait = min(state.open.wait * 2, max(rules.longest_wait, rules.first_wait))
        again = _Open(state.open.since, wait=wait, next_probe_at=now + wait, lease=rules.probe_lease)
        return _written(replace(counted, open=again)), Event.STILL_DOWN
    if success_age is not None and now - success_age >= state.failed_at:
        state = _State()
    state = _State(failures=state.failures + 1, tasks=_with(state.tasks, task), failed_at=now)
    if state.failures < rules.failures:
        return _written(state), None
    wait = rules.first_wait
    opened = _Open(since=now, wait=wait, next_probe_at=now + wait, lease=rules.probe_lease)
    return _written(replace(state, open=opened)), Event.OPENED


def succeeded(document: Document | None, *, now: float) -> tuple[None, Event | None]:
    """An attempt got what it wanted from this dependency: whoever it was, the outage is over."""
    return None, Event.RECOVERED if is_open(document) else None


def admit(
    document: Document | None, *, prober: str, now: float
) -> tuple[dict[str, Any] | None, Admitted | Probe | Wait]:
    """Whether an attempt may run now. `prober` names it, uniquely: the id of its task.

    The first to ask after the wait holds the probe, for its lease. The holder may ask again, and that
    renews the lease. At no time do two hold it.
    """
    state = _read(document)
    if state.open is None:
        return _kept(state), Admitted()
    outage = _on_this_clock(state.open, now)
    held = outage.prober is not None and now < outage.prober_until
    if outage.prober == prober or (not held and now >= outage.next_probe_at):
        until = now + outage.lease
        return _written(replace(state, open=replace(outage, prober=prober, prober_until=until))), Probe(until)
    return _written(replace(state, open=outage)), _to_wait(outage, now)


def inconclusive(document: Document | None, *, prober: str, now: float) -> dict[str, Any] | None:
    """The probe ended without a word on the dependency: the next may probe at once."""
    state = _read(document)
    if state.open is None or state.open.prober != prober:
        return _kept(state)
    free = replace(
        state.open, prober=None, prober_until=0.0, next_probe_at=min(now, state.open.next_probe_at)
    )
    return _written(replace(state, open=free))


def is_open(document: Document | None) -> bool:
    """Whether there is an outage."""
    return _read(document).open is not None


def wait_of(document: Document | None, now: float) -> Wait | None:
    """What `Wait` would say of it now to those who do not probe; None: no outage."""
    state = _read(document)
    return None if state.open is None else _to_wait(_on_this_clock(state.open, now), now)


def blind_wait(document: Document | None) -> Wait:
    """For those who know of an outage and cannot ask the store: without its clock, one wait from now on."""
    wait = view(document).wait
    return Wait(wait, wait)


def failed_at(document: Document | None) -> float:
    """When the latest failure was noted; 0 for never."""
    return _read(document).failed_at


def tasks_of(document: Document | None) -> tuple[str, ...]:
    """The tasks whose failures made the run or the outage; the first 12."""
    return _read(document).tasks


def park_delay(wait: Wait, rng: Callable[[], float]) -> float:
    """How long to park, drawn evenly: nobody is told the same time, and all are told the same window.

    Why they come back flat when it is over. The window is fixed by the next probe, not by who asks and
    when: from the probe's time on, as long as the wait that led to it. A wait never shrinks, so the wait
    after a failed probe is as long at least: whoever was parked before that probe asks again before the
    next one, and draws anew from the next window. At each probe all are therefore spread evenly over one
    wait from then on, and if it succeeds they arrive so: no peak, nobody later than that one wait.
    (Delays of one to two waits from when each asks would add up to a bell: its peak is above twice its
    mean, and its end two waits away.)
    """
    return wait.seconds + wait.spread * rng()


def view(document: Document | None) -> OutageView:
    """The state for status commands."""
    state = _read(document)
    if state.open is None:
        return OutageView(failures=state.failures, tasks=state.tasks)
    return OutageView(
        failures=state.failures,
        tasks=state.tasks,
        open_since=state.open.since,
        wait=state.open.wait,
        next_probe_at=state.open.next_probe_at,
        prober=state.open.prober,
        prober_until=state.open.prober_until,
    )


def _on_this_clock(known: _Open, now: float) -> _Open:
    """No time lies farther ahead than its own length: the clock was set back where one does."""
    return replace(
        known,
        next_probe_at=min(known.next_probe_at, now + known.wait),
        prober_until=min(known.prober_until, now + known.lease),
    )


def _to_wait(known: _Open, now: float) -> Wait:
    """Until the next probe, and evenly over one wait more (see `park_delay`).

    While a probe is under way it may succeed at any moment, or hang until its lease ends. What it has
    taken so far is the guess of what it will take yet: beside a quick one they keep to the window, and
    beside one that hangs they do not ask all the time.
    """
    return Wait(min(known.wait, abs(known.next_probe_at - now)), known.wait)


def _with(tasks: tuple[str, ...], task: str) -> tuple[str, ...]:
    return tasks if task in tasks or len(tasks) >= _TASKS else (*tasks, task)


def _kept(state: _State) -> dict[str, Any] | None:
    return None if state == _State() else _written(state)


def _written(state: _State) -> dict[str, Any]:
    document: dict[str, Any] = {
        "v": _VERSION,
        "failures": state.failures,
        "tasks": list(state.tasks),
        "failed_at": state.failed_at,
    }
    if state.open is not None:
        document |= {
            "open_since": state.open.since,
            "wait": state.open.wait,
            "next_probe_at": state.open.next_probe_at,
            "lease": state.open.lease,
            "prober": state.open.prober,
            "prober_until": state.open.prober_until,
        }
    return document


def _read(document: object) -> _State:
    """The state; a document that is none of ours is no outage and no run."""
    if not isinstance(document, Mapping) or document.get("v") != _VERSION:
        return _State()
    failures, tasks = document.get("failures"), document.get("tasks")
    if not isinstance(failures, int) or not isinstance(tasks, list) or failures < 0:
        return _State()
    if not all(isinstance(task, str) for task in tasks):
        return _State()
    failed_at = document.get("failed_at")
    latest = float(failed_at or 0.0) if _finite(failed_at) else 0.0
    if document.get("open_since") is None:
        return _State(failures, tuple(tasks), None, latest)
    times = [document.get(name) for name in ("open_since", "wait", "next_probe_at", "lease", "prober_until")]
    prober = document.get("prober")
    if not all(_finite(time) for time in times) or not isinstance(prober, (str, type(None))):
        return _State()
    since, wait, next_probe_at, lease, prober_until = (float(time or 0.0) for time in times)
    if wait <= 0 or lease <= 0:
        return _State()
    known = _Open(since, wait, next_probe_at, lease, prober, prober_until)
    return _State(failures, tuple(tasks), known, latest)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
