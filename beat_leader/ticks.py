"""The port TickStore: one durable row for each schedule and due time, which no old leader can write.

The argument. A due time is decided once: `decide` puts its row in if there is none, for a leader whose epoch
is not older than the highest that this store has seen, in one atomic step with the schedule's cursor. The row
is there before the message is sent. Whoever dies in between leaves a row that is due and not sent, which the
next leader finishes with the same task id; whoever wakes up with an old epoch is refused by the store.
What remains: a message that was sent and whose row was not marked is sent twice, under one id.

Rows are deleted some time after they ended; cursors stay, so what was decided is not decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable
from uuid import NAMESPACE_URL, uuid5

from hardening.core.errors import HardeningError

__all__ = [
    "Cursor",
    "Decision",
    "OldEpoch",
    "Outcome",
    "State",
    "Tick",
    "TickStore",
    "TicksUnavailable",
    "follows",
    "moved",
    "row_of",
    "task_id_for",
]


class TicksUnavailable(HardeningError):
    """The tick store does not answer, or lacks its tables; the text says what to do. What was asked may have
    been done or not."""


class OldEpoch(HardeningError):
    """A later term has begun: this one may write nothing."""

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__(f"the term of epoch {epoch} is over: the store has seen epoch {newest}")
        self.epoch = epoch
        self.newest = newest


class State(StrEnum):
    """What was decided about a due time, and how far it is."""

    DUE = "due"
    """To be sent; not known to be sent."""

    SENT = "sent"
    """The broker has it."""

    SKIPPED = "skipped"
    """Decided not to send it: `why` says why."""

    MISSED = "missed"
    """To be sent, and could not be within its time: `why` says the last error."""


class Outcome(StrEnum):
    """What is known of the task that was sent. Empty: nothing yet."""

    UNKNOWN = ""
    STARTED = "started"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    """A dead letter was kept, `detail` names its reason."""

    CANCELLED = "cancelled"


def task_id_for(schedule: str, due_ms: int) -> str:
    """The task id of one due time: the same for whoever sends it."""
    name = schedule.encode("utf-8", "backslashreplace").decode("utf-8")
    return str(uuid5(NAMESPACE_URL, f"celery-hardening:beat:{name}:{due_ms}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A due time and what becomes of it: DUE or SKIPPED."""

    schedule: str
    due_ms: int
    """Milliseconds since 1970."""

    state: State
    why: str = ""
    decided_ms: int = 0
    """When it was decided, by the store's time that the leader knows."""

    first_ms: int | None = None
    """SKIPPED only: the row stands for `count` due times in a row, from this one to `due_ms`."""

    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A row. Times are milliseconds since 1970; None: it did not happen, or is not known."""

    schedule: str
    due_ms: int
    state: State
    task_id: str
    epoch: int
    """Of the leader that decided, then of the one that sent."""

    decided_ms: int
    sent_ms: int | None = None
    why: str = ""
    outcome: Outcome = Outcome.UNKNOWN
    started_ms: int | None = None
    ended_ms: int | None = None
    detail: str = ""
    """Of the outcome: the reason of a dead letter."""

    first_ms: int | None = None
    """As in its Decision."""

    count: int = 1

    @property
    def late_ms(self) -> int | None:
        """How long after its due time it was sent."""
        return None if self.sent_ms is None else max(0, self.sent_ms - self.due_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a schedule is: every due time up to `decided_ms` was decided, and none after it."""

    schedule: str
    definition: str
    """A digest of when it is due. Another one begins a new series at `anchor_ms`."""

    anchor_ms: int
    """From where intervals count."""

    decided_ms: int


def row_of(decision: Decision, epoch: int) -> Tick:
    """The row that a decision makes."""
    return Tick(
        schedule=decision.schedule,
        due_ms=decision.due_ms,
        state=decision.state,
        task_id=task_id_for(decision.schedule, decision.due_ms),
        epoch=epoch,
        decided_ms=decision.decided_ms,
        why=decision.why,
        first_ms=decision.first_ms,
        count=decision.count,
    )


def moved(before: Cursor | None, new: Cursor) -> Cursor:
    """What is kept when a cursor is put: within one definition it never goes back, and its anchor stays."""
    if before is None or before.definition != new.definition:
        return new
    return replace(before, decided_ms=max(before.decided_ms, new.decided_ms))


def follows(before: Outcome, new: Outcome) -> bool:
    """Whether a new outcome takes the place of the one before. A success is final."""
    if new is Outcome.SUCCEEDED:
        return before is not Outcome.SUCCEEDED
    if new is Outcome.STARTED:
        return before is Outcome.UNKNOWN
    return before in (Outcome.UNKNOWN, Outcome.STARTED)


@runtime_checkable
class TickStore(Protocol):
    """Constructed with its OPTIONS as keyword arguments, and with the Celery app as `app` where it takes one.

    Safe in threads and after a fork. Each call ends within seconds, or raises TicksUnavailable. What it wrote
    stays, whatever becomes of a transaction that the caller is in. Methods with `epoch` raise OldEpoch, and
    write nothing, if a higher one was seen; a higher one than was seen becomes the newest.
    """

    def open_term(self, epoch: int) -> None:
        """From now on no lower epoch writes."""
        ...

    def newest_epoch(self) -> int:
        """The highest epoch that was seen; 0: none."""
        ...

    def cursors(self) -> dict[str, Cursor]:
        """Of all schedules, by name."""
        ...

    def put_cursors(self, epoch: int, cursors: Iterable[Cursor]) -> None:
        """New schedules, and those that are due otherwise now. A cursor of the same definition never goes
        back: the later `decided_ms` stays."""
        ...

    def drop_cursors(self, epoch: int, schedules: Iterable[str]) -> None:
        """They are gone or disabled: if they come back, they begin anew."""
        ...

    def decide(self, epoch: int, decisions: Sequence[Decision]) -> list[bool]:
        """One atomic step for all of them: a row for each, and its schedule's cursor moves up to it.

        False for a due time that has a row already, or is not after its schedule's cursor: nothing is written
        for it. The caller sends nothing for it; if it is DUE, `unfinished` has it. A row of this very epoch
        and `decided_ms` is the caller's own, of a request whose answer was lost: True.
        """
        ...

    def sent(self, epoch: int, ticks: Sequence[tuple[str, int]], now_ms: int) -> None:
        """(schedule, due_ms) of DUE rows whose messages the broker has."""
        ...

    def missed(self, epoch: int, schedule: str, due_ms: int, why: str) -> None:
        """A DUE row whose time to be sent is over."""
        ...

    def unfinished(self) -> list[Tick]:
        """Every DUE row, the oldest due time first."""
        ...

    def note(self, task_id: str, outcome: Outcome, at_ms: int, detail: str = "") -> bool:
        """What a worker knows of a task. Forward only: an ended one is not started again, except that a
        success replaces DEAD (it was replayed). False: there is no such row."""
        ...

    def last(self, schedules: Sequence[str] | None = None) -> dict[str, Tick]:
        """The row of the latest due time of each (None: of all that have any)."""
        ...

    def last_sent(self, schedule: str) -> Tick | None:
        """The SENT or DUE row of the latest due time: for who must not overlap."""
        ...

    def history(
        self, schedule: str | None = None, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> list[Tick]:
        """Rows, the latest due time first, and those of one moment in an order of the store's; only those
        after `before` in this order, which is the (due_ms, schedule) of the last row of the page before."""
        ...

    def late(self, *, before_ms: int) -> list[Tick]:
        """DUE rows whose due time is before that: at most 100, the oldest first."""
        ...

    def prune(self, *, before_ms: int, most: int, limit: int = 1000) -> int:
        """Delete rows of due times before that, and those before the latest `most` of a schedule, which some
        calls later finds; at most `limit` or so, none that is DUE, never the latest of a schedule that has a
        cursor. Returns how many."""
        ...

    def counts(self, *, since_ms: int) -> Mapping[State, int]:
        """How many rows of due times since then are in each state."""
        ...

    def close(self) -> None:
        """Leave no connection open. It may be used again."""
        ...
