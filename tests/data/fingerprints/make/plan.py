"""Which failures are wanted of which deployment. Pure, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from .case import Case, how_many
from .cases_flow import FLOW
from .cases_library import LIBRARY
from .cases_shop import SHOP
from .deployments import DEPLOYMENTS
from .odd import ODD, Odd
from .values import Values

__all__ = ["KINDS", "SEED", "Wanted", "wanted"]

SEED = 20261130
_CASES: list[Case] = [*SHOP, *LIBRARY, *FLOW]
KINDS: dict[str, str] = {
    **{case.label: case.kind for case in _CASES},
    **{odd.label: "message only" for odd in ODD},
}
"""The stratum of each label."""


@dataclass(frozen=True)
class Wanted:
    """One failure: `variant` counts those of its label."""

    case: Case | Odd
    variant: int
    deployment: str

    @property
    def values(self) -> Values:
        return Values(f"{SEED} {self.case.label} {self.variant}")

    @property
    def task_id(self) -> str:
        return Values(f"{SEED} id {self.case.label} {self.variant}").uuid()


def wanted() -> list[Wanted]:
    """All of them. The variants of a label are spread over the deployments, whose Pythons differ."""
    return [Wanted(case, i, name) for case, count in _counts() for i, name in _spread(case.label, count)]


def _counts() -> Iterator[tuple[Case | Odd, int]]:
    for case in _CASES:
        yield case, how_many(case, SEED)
    for odd in ODD:
        yield odd, odd.count


def _spread(label: str, count: int) -> Iterable[tuple[int, str]]:
    names = [deployment.name for deployment in DEPLOYMENTS]
    order = Random(f"{SEED} {label}").sample(names, len(names))
    return ((i, order[i % len(order)]) for i in range(count))
