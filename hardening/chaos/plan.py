"""The plan: seed -> what is published, in which order, and which fault follows after how much progress. Pure.

Faults are tied to progress (so many tasks ended) and not to the clock, and victims are named by a fraction
of those that there are: one seed is one plan. What the operating system and the servers then do in which
order is theirs, so two runs of one seed are alike and not the same.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid5

__all__ = ["MALFORMATIONS", "Fault", "Item", "Kind", "Plan", "Strike", "make_plan"]

_NAMESPACE = UUID("6c1f0a3e-52f5-4d0c-9d0b-6a4f0f0a7c11")


class Kind(StrEnum):
    """What is published. Chains and chords are several tasks each."""

    QUICK = "quick"
    SLOW = "slow"
    LONG = "long"
    DELAYED = "delayed"
    FAILING = "failing"
    RETRYING = "retrying"
    REVOKED = "revoked"
    EXPIRED = "expired"
    CHAIN = "chain"
    CHORD = "chord"
    POISON_CHILD = "poison_child"
    POISON_WORKER = "poison_worker"
    MALFORMED = "malformed"

    @property
    def succeeds(self) -> bool:
        """Whether each of its tasks should end well, if nothing is killed too often."""
        return self in _SUCCEEDING

    @property
    def starts(self) -> bool:
        """Whether a worker should start it at all."""
        return self not in (Kind.REVOKED, Kind.EXPIRED, Kind.MALFORMED)


_SUCCEEDING = frozenset(
    {Kind.QUICK, Kind.SLOW, Kind.LONG, Kind.DELAYED, Kind.RETRYING, Kind.CHAIN, Kind.CHORD}
)

SHARES: Mapping[Kind, float] = MappingProxyType(
    {
        Kind.SLOW: 0.05,
        Kind.LONG: 0.003,
        Kind.DELAYED: 0.08,
        Kind.FAILING: 0.05,
        Kind.RETRYING: 0.08,
        Kind.REVOKED: 0.02,
        Kind.EXPIRED: 0.015,
        Kind.CHAIN: 0.06,
        Kind.CHORD: 0.05,
        Kind.POISON_CHILD: 0.004,
        Kind.POISON_WORKER: 0.001,
        Kind.MALFORMED: 0.02,
    }
)
"""Of all tasks, by number; the rest is quick."""

SIZES: Mapping[Kind, int] = MappingProxyType({Kind.CHAIN: 3, Kind.CHORD: 5})

MALFORMATIONS = (
    "unregistered",
    "undecodable",
    "content_type",
    "wrong_shape",
    "kwargs",
    "eta",
    "no_id",
    "no_task",
    "oversized",
    "garbage",
)
"""What can be wrong with a raw message; each kind in turn. See malformed.py."""

_DEATHS = ("kill", "segfault", "exit")


class Fault(StrEnum):
    """What is done to the workers and their servers."""

    KILL_CHILD = "kill_child"
    """SIGKILL of one pool process."""

    KILL_WORKER = "kill_worker"
    """SIGKILL of a worker and all its processes, as when a machine is gone."""

    STOP = "stop"
    """SIGSTOP of a whole worker for longer than its lease, then SIGCONT."""

    DEPLOY = "deploy"
    """SIGTERM of a worker; a fresh one takes its place."""

    CUT = "cut"
    """All connections to the broker end at once."""

    BROKER = "broker"
    """SIGKILL of the broker, and a restart on its data."""

    DATABASE = "database"
    """The database is killed or stopped, and comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One publish. `keys` are the delivery keys of its tasks: one, a chain's in order, or a chord's with its
    body last."""

    number: int
    kind: Kind
    keys: tuple[str, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault, due when `after` tasks have ended. `dice`, of [0, 1), names the victim and the details."""

    number: int
    fault: Fault
    after: int
    dice: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All of a run that its seed decides."""

    seed: int
    items: tuple[Item, ...]
    strikes: tuple[Strike, ...]

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return sum(len(item.keys) for item in self.items)


def make_plan(
    *,
    seed: int,
    tasks: int,
    pool: str = "prefork",
    without: Collection[str] = (),
    faults: Mapping[str, int] | None = None,
) -> Plan:
    """The plan of a seed. `without` leaves out kinds of task or faults by name; `faults` says how many of
    each, where the usual number (one kill for forty tasks, and fewer of the others) is not wanted."""
    dice = random.Random(f"celery-hardening chaos {seed}")
    kinds = [kind for kind, number in _amounts(tasks, without).items() for _ in range(number)]
    dice.shuffle(kinds)
    serial = _serial(seed)
    malformations = _in_turn(dice)
    items = tuple(
        Item(
            number=number,
            kind=kind,
            keys=tuple(next(serial) for _ in range(SIZES.get(kind, 1))),
            details=_details(kind, dice, malformations),
        )
        for number, kind in enumerate(kinds)
    )
    expected = sum(len(item.keys) for item in items if item.kind.succeeds)
    counts = {**_usual_faults(tasks, pool), **{Fault(name): n for name, n in (faults or {}).items()}}
    named = [fault for fault, number in counts.items() if fault not in without for _ in range(number)]
    dice.shuffle(named)
    moments = sorted(dice.randint(max(1, expected // 50), max(2, expected * 9 // 10)) for _ in named)
    strikes = tuple(
        Strike(number=number, fault=fault, after=after, dice=(dice.random(), dice.random()))
        for number, (fault, after) in enumerate(zip(named, moments, strict=True))
    )
    return Plan(seed=seed, items=items, strikes=strikes)


def _amounts(tasks: int, without: Collection[str]) -> dict[Kind, int]:
    """How many items of each kind make `tasks` tasks: quick ones take up the rounding."""
    if tasks < 1:
        raise ValueError("at least one task")
    amounts: dict[Kind, int] = {}
    left = tasks
    for kind, share in SHARES.items():
        size = SIZES.get(kind, 1)
        number = max(1, round(share * tasks / size)) if kind not in without else 0
        if number * size <= left:
            amounts[kind] = number
            left -= number * size
    return {**amounts, Kind.QUICK: left}


def _usual_faults(tasks: int, pool: str) -> dict[Fault, int]:
    kills = max(4, tasks // 40)
    children = round(kills * 0.62) if pool == "prefork" else 0
    return {
        Fault.KILL_CHILD: children,
        Fault.KILL_WORKER: kills - children,
        Fault.STOP: max(1, kills // 25),
        Fault.DEPLOY: max(1, kills // 8),
        Fault.CUT: max(1, kills // 12),
        Fault.BROKER: max(1, kills // 40),
        Fault.DATABASE: max(1, kills // 40),
    }


def _serial(seed: int) -> Iterator[str]:
    number = 0
    while True:
        yield str(uuid5(_NAMESPACE, f"{seed}/{number}"))
        number += 1


def _in_turn(dice: random.Random) -> Iterator[str]:
    names = list(MALFORMATIONS)
    while True:
        dice.shuffle(names)
        yield from tuple(names)


def _details(kind: Kind, dice: random.Random, malformations: Iterator[str]) -> dict[str, Any]:
    match kind:
        case Kind.SLOW:
            return {"seconds": round(dice.uniform(0.2, 1.2), 2)}
        case Kind.LONG:
            return {"seconds": 8.0}
        case Kind.DELAYED:
            return {"countdown": round(dice.uniform(0.5, 6.0), 2)}
        case Kind.RETRYING:
            return {"times": dice.randint(1, 3)}
        case Kind.REVOKED:
            return {"countdown": round(dice.uniform(3.0, 6.0), 2)}
        case Kind.EXPIRED:
            return {"countdown": 3.0, "expires": 1.0}
        case Kind.POISON_CHILD | Kind.POISON_WORKER:
            return {"how": dice.choice(_DEATHS)}
        case Kind.MALFORMED:
            return {"malformation": next(malformations)}
        case _:
            return {}
