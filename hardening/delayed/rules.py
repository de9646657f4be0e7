"""HARDENING["DELAYED"], read: from when on a message waits in a store, and in which one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardening.core.findings import Finding
from hardening.retries.reading import Reader, positive_seconds_of
from hardening.retries.resolve import section_of

__all__ = ["DelayedRules", "delayed_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRules:
    """What a project may set in HARDENING["DELAYED"]."""

    horizon: float = 12.0
    """A message that is due later than in so many seconds is parked. Shorter waits stay in the worker."""

    store: Mapping[str, Any] | None = None
    """{"BACKEND": dotted path, "OPTIONS": {...}}; None: the broker where it is Redis, else the database."""


def delayed_of(raw: Mapping[str, Any]) -> tuple[DelayedRules, list[Finding]]:
    """The rules of delayed tasks, and what is wrong with them."""
    readers: dict[str, Reader] = {"horizon": positive_seconds_of, "store": _store_of}
    return section_of(DelayedRules, "DELAYED", raw, readers, code="CH001")


def _store_of(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("BACKEND"), str):
        raise ValueError('a store is a dict such as {"BACKEND": "dotted.path.of.a.Class", "OPTIONS": {}}')
    return value
