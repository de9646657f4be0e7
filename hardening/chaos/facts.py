"""What is known of a run, as values: what was published, who ran it when, the letters, and the faults."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Hit", "Letter", "Mark", "Published"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One task that was to be published. `after`: those that must succeed first, and lead to this one."""

    key: str
    kind: str
    confirmed: bool
    """The broker took it, as far as its publisher knows."""

    tries: int = 1
    span: tuple[float, float] = (0.0, 0.0)
    """From before the first publish until the broker took it; the client tries again by itself in between."""

    after: tuple[str, ...] = ()
    answers: bool = True
    """Its message says under which id a result is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line of the witness: "start" or "end" of a body."""

    what: str
    key: str
    at: float
    pid: int = 0
    parent: int = 0
    attempt: int = 0
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter, as its store has it. `open` is false for one that somebody replayed or discarded."""

    key: str
    reason: str
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One fault that was done. `pids`: the processes hit; None: all of them, as by a broker's restart."""

    name: str
    at: float
    until: float = 0.0
    pids: frozenset[int] | None = None
    note: str = ""

    def reaches(self, run: Mark) -> bool:
        """Whether it hit the process of a run, or that one's parent."""
        return self.pids is None or run.pid in self.pids or run.parent in self.pids
