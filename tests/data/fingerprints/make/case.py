"""A case: one label, and how to make a task fail for that one reason, each time with other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from .values import Values

__all__ = ["Case", "Make", "cases_of", "how_many"]

Make = Callable[[Values], dict[str, Any]]

_SIZES = (1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 7, 8, 10)


@dataclass(frozen=True)
class Case:
    """`kind` is the stratum of the split; `count` 0 lets the seed choose how many variants there are."""

    label: str
    task: str
    kind: str
    make: Make
    count: int = 0


def cases_of(
    kind: str, module: str, rows: Iterable[tuple[str, str, Make] | tuple[str, str, Make, int]]
) -> list[Case]:
    """Rows of (task, place and error, values, count) of one module of the shop."""
    return [
        Case(
            label=f"{module}.{row[0]}/{row[1]}",
            task=f"shop.tasks.{module}.{row[0]}",
            kind=kind,
            make=row[2],
            count=row[3] if len(row) == 4 else 0,
        )
        for row in rows
    ]


def how_many(case: Case, seed: int) -> int:
    """Variants of a case: most have some, a few one, a few many."""
    return case.count or Random(f"{seed} {case.label}").choice(_SIZES)
