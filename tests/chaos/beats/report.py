"""The results as a table, and the last line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .ledger import percentile
from .plan import Fault

__all__ = ["MOST_TAKEOVER_SECONDS", "is_good", "last_line", "table"]

MOST_TAKEOVER_SECONDS = 8.0

Stage = Mapping[str, Any]


def table(stages: Sequence[Stage]) -> str:
    """Takeovers by fault and stage, then what became of the due times."""
    lines = [f"{'':<22}{'faults':>8}{'failovers':>11}{'p50':>8}{'p99':>8}{'max':>8}"]
    for fault in Fault:
        lines.append(_row(str(fault), _done(stages, fault)))
        lines += [
            _row(f"  {stage['place']}", _done([stage], fault)) for stage in stages if _done([stage], fault)
        ]
    lines.append("")
    counted = ("due", "sent", "skipped", "doubled_messages", "not_run", "double", "missed", "stray")
    lines.append(f"{'':<22}" + "".join(f"{name.replace('_', ' '):>18}" for name in counted))
    lines += [
        f"{stage['place']:<22}" + "".join(f"{stage['account'][name]:>18}" for name in counted)
        for stage in stages
    ]
    return "\n".join(lines)


def last_line(stages: Sequence[Stage], seed: int) -> str:
    """What the run comes to."""
    failovers = sum(each["failover"] for stage in stages for each in stage["done"])
    double = sum(stage["account"]["double"] for stage in stages)
    missed = sum(stage["account"]["missed"] for stage in stages)
    return (
        f"beat: failovers={failovers} double={double} missed={missed} "
        f"takeover_p99={_seconds(percentile(_kills(stages), 0.99))} seed={seed}"
    )


def is_good(stages: Sequence[Stage]) -> bool:
    """Nothing doubled, missed or otherwise wrong, and each killed leader was followed in time."""
    p99 = percentile(_kills(stages), 0.99)
    return not any(stage["problems"] for stage in stages) and (p99 is None or p99 <= MOST_TAKEOVER_SECONDS)


def _kills(stages: Sequence[Stage]) -> list[float]:
    return _takeovers(_done(stages, Fault.KILL))


def _done(stages: Sequence[Stage], fault: Fault) -> list[Mapping[str, Any]]:
    return [each for stage in stages for each in stage["done"] if each["fault"] == fault]


def _takeovers(done: Sequence[Mapping[str, Any]]) -> list[float]:
    return [each["takeover"] for each in done if each["takeover"] is not None]


def _row(name: str, done: Sequence[Mapping[str, Any]]) -> str:
    took = _takeovers(done)
    return (
        f"{name:<22}{len(done):>8}{sum(each['failover'] for each in done):>11}"
        f"{_seconds(percentile(took, 0.5)):>8}{_seconds(percentile(took, 0.99)):>8}"
        f"{_seconds(max(took, default=None)):>8}"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
