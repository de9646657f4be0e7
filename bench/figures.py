"""Percentiles of few values, and of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["percentile", "seconds_of", "summary"]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of all do not exceed: the p99 of 20 values is the largest of them."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def summary(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """What a table and build/bench.json have of a series."""
    if not values:
        return {"count": 0}
    figures = {
        "p50": percentile(values, 0.5),
        "p99": percentile(values, 0.99),
        "min": min(values),
        "max": max(values),
    }
    return {"count": len(values), **{name: round(value, digits) for name, value in figures.items()}}


def seconds_of(values: Sequence[float]) -> str:
    """A series as the tables show it."""
    if not values:
        return f"{'-':>8}{'-':>8}{'-':>8}{'-':>8}"
    found = summary(values)
    return "".join(f"{found[name]:>8.2f}" for name in ("p50", "p99", "min", "max"))
