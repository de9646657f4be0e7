"""The reference page of retry policies: the fields, their defaults, and the default schedule."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from hardening.retries.budget import Budget
from hardening.retries.durations import text_of
from hardening.retries.outage import Outage
from hardening.retries.policy import DEFAULTS, RetryPolicy

__all__ = ["FIELDS", "page"]

FIELDS = {
    "delays": (
        "The waits themselves, one after the other; the last one again and again. Takes the place of the "
        "next four. Without `max_attempts` it also means one attempt more than there are delays."
    ),
    "base": "The longest wait after the first failure. It doubles with each further one.",
    "cap": "No wait grows beyond it.",
    "floor": "No wait is drawn below it.",
    "jitter": "True: each wait is drawn at random between floor and its longest. False: always the longest.",
    "max_attempts": (
        "Attempts in all, the first one included. `math.inf` is no limit; then `max_age` ends the retries."
    ),
    "max_age": "A try that would begin later than this after the first publish is not made.",
    "retry_after_cap": "The longest wait that another side may ask for.",
    "unknown_attempts": "Attempts in all for an error that no rule knows.",
    "automatic": (
        "False: only what asks for a retry is retried (`autoretry_for`, `self.retry()`, `Transient`)."
    ),
}
_DURATIONS = {"base", "cap", "floor", "max_age", "retry_after_cap"}


def page(head: str) -> str:
    """The whole page, in Markdown, below the line `head`."""
    return "\n".join(
        [head, "# Retry policy", "", _INTRODUCTION, *_keys(), "", *_schedule(), "", *_others(), ""]
    )


_INTRODUCTION = """\
The keys of `HARDENING["RETRY"]`, of a task's `retry_policy` and of a rule's `retry`, in capitals or not.
Durations are seconds, a `timedelta`, or a text with units: `"500 ms"`, `"30 s"`, `"1 h 30 m"`, `"1 d"`. How
to choose is told in [choose a retry policy](../how-to/retry-policy.md).
"""


def _keys() -> list[str]:
    lines = ["| key | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{field.name}` | {_shown(field.name, getattr(DEFAULTS, field.name))} | {FIELDS[field.name]} |"
        for field in fields(RetryPolicy)
    ]
    return lines


def _schedule() -> list[str]:
    """The waits of the default policy, one line each, and their sums."""
    lines = [
        "## The default schedule",
        "",
        f"`{DEFAULTS.describe()}`",
        "",
        "| after failed attempt | shortest wait | longest wait | on average | longest so far |",
        "|---|---|---|---|---|",
    ]
    total = 0.0
    for attempt, (low, high) in enumerate(DEFAULTS.schedule(), start=1):
        total += high
        cells = (str(attempt), *map(text_of, (low, high, (low + high) / 2, total)))
        lines.append(f"| {' | '.join(cells)} |")
    shortest, longest = DEFAULTS.span()
    average = sum(low + high for low, high in DEFAULTS.schedule()) / 2
    spans = ", ".join(
        (
            f"{text_of(shortest)} at the shortest",
            f"{text_of(average)} on average",
            f"{text_of(longest)} at the longest",
        )
    )
    return [*lines, "", f"From the first failure to the last try: {spans}, and the attempts' own time."]


def _others() -> list[str]:
    outage, budget = Outage(), Budget()
    lines = ["## Outages and budgets", "", "| setting | key | default |", "|---|---|---|"]
    for field in fields(outage):
        value = getattr(outage, field.name)
        shown = f"{value} in a row" if field.name == "failures" else text_of(value)
        lines.append(f"| `OUTAGE` | `{field.name.upper()}` | {shown} |")
    return [
        *lines,
        f"| `RETRY_BUDGET` | `SHARE` | {budget.share:g} of the task's starts |",
        f"| `RETRY_BUDGET` | `PER_SECOND` | {budget.per_second:g} more |",
    ]


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name in _DURATIONS:
        return text_of(value)
    return "no limit" if value == math.inf else f"{value}"
