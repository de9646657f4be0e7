"""What is done to the Beats, drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LEASE_SECONDS", "SCHEDULES", "STAGES", "Action", "Fault", "Place", "faults", "shares"]

LEASE_SECONDS = 6.0

SCHEDULES = {
    "a": 1.0,
    "b": 1.1,
    "c": 1.3,
    "d": 1.7,
    "kept a": 2.3,
    "kept b": 2.9,
    "kept c": 3.7,
    "kept d": 5.0,
}
"""Name and interval in seconds. The messages of the `kept` ones do not expire: each of them is to run."""


class Fault(StrEnum):
    """What is done."""

    KILL = "SIGKILL"
    LONG_PAUSE = "long pause"
    SHORT_PAUSE = "short pause"
    STOP = "SIGTERM"
    STORE_KILL = "store killed"
    CUT = "store cut off"
    JUMP = "clock jump"


@dataclass(frozen=True, kw_only=True)
class Action:
    """One fault, done to whoever leads or to the store."""

    fault: Fault
    after_seconds: float
    """A pause before it."""

    at_a_message: bool = False
    """Right when the leader's next message is at the broker: its row is not marked then, or only just."""

    seconds: float = 0.0
    """How long it lasts; of a jump: by how much."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where lock and ticks are kept, and where schedules come from."""

    store: str
    source: str

    def __str__(self) -> str:
        return f"{self.store} {self.source}"


STAGES = tuple(
    Place(store=store, source=source) for source in ("code", "database") for store in ("redis", "postgresql")
)

_WEIGHTS = {
    Fault.KILL: 36,
    Fault.LONG_PAUSE: 16,
    Fault.STOP: 22,
    Fault.STORE_KILL: 8,
    Fault.CUT: 8,
    Fault.SHORT_PAUSE: 4,
    Fault.JUMP: 6,
}


def faults(seed: int, stage: Place, *, jumps: bool = True) -> Iterator[Action]:
    """Without end."""
    dice = random.Random(f"{seed} {stage}")
    kinds = [each for each in Fault if jumps or each is not Fault.JUMP]
    while True:
        fault = dice.choices(kinds, [_WEIGHTS[each] for each in kinds])[0]
        yield Action(
            fault=fault,
            after_seconds=dice.uniform(0.0, 1.5),
            at_a_message=dice.random() < 0.5,
            seconds=_lasts(fault, dice),
        )


def _lasts(fault: Fault, dice: random.Random) -> float:
    match fault:
        case Fault.LONG_PAUSE:
            return dice.uniform(LEASE_SECONDS + 1.0, LEASE_SECONDS + 4.0)
        case Fault.SHORT_PAUSE:
            return dice.uniform(0.3, 2.5)
        case Fault.STORE_KILL | Fault.CUT:
            return dice.uniform(0.2, LEASE_SECONDS + 3.0)
        case Fault.JUMP:
            return dice.choice([-1, 1]) * dice.choice([5.0, 30.0, 3600.0, 86_400.0])
        case _:
            return 0.0


def shares(total: int, stages: int) -> list[int]:
    """How many failovers each stage has to make."""
    return [total // stages + (number < total % stages) for number in range(stages)]
