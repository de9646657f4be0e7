"""HARDENING["INTAKE"], read: what becomes of messages that are no task, and of tasks that nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardening.core.findings import Finding
from hardening.retries.reading import Reader, flag_of, positive_seconds_of
from hardening.retries.resolve import section_of

__all__ = ["IntakeRules", "intake_of"]

CODE = "CH001"
_MOST_OFFERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeRules:
    """What a project may set in HARDENING["INTAKE"]."""

    offers: int = 0
    """How often a message of a task that the worker does not know goes back to its queue before it is kept
    as a letter: for deploys that reach the workers one after another."""

    offer_after: float = 10.0
    """Seconds between two of these."""

    most_bytes: int = 64 * 1024 * 1024
    """A body of more bytes is kept as a letter, and not decoded."""

    keep_expired: bool = True
    """Whether a message that comes after its `expires` is kept as a letter. Without it, it is revoked, as
    with Celery, and its work is gone."""


def intake_of(raw: Mapping[str, Any]) -> tuple[IntakeRules, list[Finding]]:
    """The rules of intake, and what is wrong with them."""
    readers: dict[str, Reader] = {
        "offers": _offers_of,
        "offer_after": positive_seconds_of,
        "most_bytes": _bytes_of,
        "keep_expired": flag_of,
    }
    return section_of(IntakeRules, "INTAKE", raw, readers, code=CODE)


def _offers_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_OFFERS:
        raise ValueError(f"must be a whole number from 0 to {_MOST_OFFERS}, 0 for none")
    return value


def _bytes_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a whole number of bytes from 1")
    return value
