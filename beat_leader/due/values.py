"""Due: the due times of a stretch of time. And the error of a schedule that has none to tell."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BadSchedule", "Due"]


class BadSchedule(Exception):
    """When this schedule is due cannot be found out: it says nonsense, or its own code failed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"schedule {name}: {why}" if name else why)
        self.name = name
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Due times of one schedule, seconds since 1970. The latest ones are listed, those before are counted."""

    times: tuple[float, ...] = ()
    """The latest, ascending."""

    earlier_count: int = 0
    """How many there were before those."""

    earlier_first: float | None = None
    """The first of the counted ones; None: there are none."""

    earlier_last: float | None = None
    """The last of the counted ones."""

    @property
    def count(self) -> int:
        """How many there are in all."""
        return len(self.times) + self.earlier_count

    def __bool__(self) -> bool:
        return self.count > 0
