"""Grace: how long running tasks may go on once a worker was told to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardening.core.findings import Finding
from hardening.retries.durations import seconds_of
from hardening.retries.reading import Reader
from hardening.retries.resolve import section_of

__all__ = ["Shutdown", "shutdown_of"]

CODE = "CH019"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """`HARDENING["SHUTDOWN"]`, read."""

    grace: float | None = None
    """Seconds that running tasks have after SIGTERM; what runs then is given back. None: no limit."""


def shutdown_of(raw: Mapping[str, Any]) -> tuple[Shutdown, list[Finding]]:
    """The rules of `HARDENING["SHUTDOWN"]`, and what of it cannot be used."""
    readers: dict[str, Reader] = {"grace": seconds_of}
    return section_of(Shutdown, "SHUTDOWN", raw, readers, code=CODE)
