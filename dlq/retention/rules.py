"""What DLQ["RETENTION"] says, read once and checked. Pure.

Open letters are work that nobody has decided on. They are never deleted: an entry for them must say after how
long they are given up and why, and then they are discarded, which is an archive, with that reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..ages import age_of, age_text
from ..wrong import Wrong

__all__ = ["KEYS", "LEAST", "RetentionRules", "read_retention"]

KEYS = ("replayed", "discarded", "open", "operations")
LEAST = timedelta(hours=1)
"""Less is a typing error: a letter must be there when somebody comes to look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """None: kept for ever."""

    replayed: timedelta | None = None
    discarded: timedelta | None = None
    open_after: timedelta | None = None
    """Open letters of this age are discarded,"""
    open_reason: str = ""
    """with this reason."""
    operations: timedelta | None = None
    """Items of closed operations. By default the longest of the others for closed letters."""

    @property
    def any(self) -> bool:
        """Whether anything is ever dropped or given up."""
        return any((self.replayed, self.discarded, self.open_after, self.operations))


def read_retention(raw: Mapping[str, Any] | None) -> tuple[RetentionRules, list[Wrong]]:
    """The rules, and what is wrong. A wrong entry deletes nothing: what it names is kept for ever."""
    wrong: list[Wrong] = []
    ages: dict[str, timedelta] = {}
    reason = ""
    for key, value in (raw or {}).items():
        if key not in KEYS:
            known = ", ".join(KEYS)
            wrong.append(Wrong(key=str(key), what=f"unknown key {key!r}", remedy=f"Known keys: {known}."))
        elif key == "open":
            try:
                ages["open"], reason = _open(value)
            except ValueError as exc:
                remedy = (
                    "Write {'open': {'after': '365 d', 'reason': 'why they are given up'}}, or leave it out."
                )
                wrong.append(Wrong(key=key, what=str(exc), remedy=remedy))
        else:
            try:
                ages[key] = _age(value)
            except ValueError as exc:
                wrong.append(Wrong(key=key, what=str(exc), remedy='Give an age from 1 h, as "90 d".'))
    closed = [ages[key] for key in ("replayed", "discarded") if key in ages]
    rules = RetentionRules(
        replayed=ages.get("replayed"),
        discarded=ages.get("discarded"),
        open_after=ages.get("open"),
        open_reason=reason,
        operations=ages.get("operations", max(closed, default=None)),
    )
    return rules, wrong


def _open(value: Any) -> tuple[timedelta, str]:
    if not isinstance(value, Mapping):
        raise ValueError("open letters are never dropped without a reason: an age alone is refused")
    reason = value.get("reason")
    if set(value) != {"after", "reason"} or not isinstance(reason, str) or not reason.strip():
        raise ValueError("an entry for open letters has 'after' and 'reason', and nothing else")
    return _age(value["after"]), reason.strip()


def _age(value: Any) -> timedelta:
    age = age_of(value)
    if age < LEAST:
        raise ValueError(f"{age_text(age)} is too short")
    return age
