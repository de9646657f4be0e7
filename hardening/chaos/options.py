"""What a run was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .overlay import LEASE_SECONDS

__all__ = ["HARDENED", "PLAIN", "Options"]

HARDENED, PLAIN = "hardened", "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run. Seconds are the clock's; `without` and `faults` as in `make_plan`."""

    seed: int
    broker: str = "redis"
    tasks: int = 1000
    pool: str = "prefork"
    workers: int = 3
    concurrency: int = 4
    variant: str = HARDENED
    app: str | None = None
    settings: str | None = None
    send: str | None = None
    database: str = "auto"
    without: tuple[str, ...] = ()
    faults: Mapping[str, int] | None = None
    as_configured: bool = False
    lease_seconds: float = LEASE_SECONDS
    most_seconds: float | None = None
    patience_seconds: float = 60.0
    """Without one more task settled for so long, the run is over."""

    worker_args: tuple[str, ...] = field(default=())

    @property
    def limit_seconds(self) -> float:
        """The longest that a run may take."""
        return 300.0 + 0.3 * self.tasks if self.most_seconds is None else self.most_seconds
