"""What becomes of due times: to be sent or skipped, and why. Pure."""

from __future__ import annotations

from .due import Due
from .entry import Entry, Misfire, Policy
from .ticks import Decision, State

__all__ = ["decide", "keep_of", "window_seconds"]

_LISTED = 100
_LEAST_WINDOW = 60.0
_LONGEST_WINDOW = 86_400.0

OVERLAPS = "the one before has not ended"
LATER = "a later due time is sent"
SKIP = "misfire: skip"
ONCE = "it is sent once only"


def keep_of(entry: Entry) -> int:
    """How many due times to list for `decide`: `keep` of `due_of`."""
    policy = entry.policy
    return max(_LISTED, policy.most) if policy.misfire is Misfire.ALL else _LISTED


def decide(entry: Entry, due: Due, *, now: float, overlapping: bool) -> list[Decision]:
    """One decision for each due time, oldest first; skipped ones in a row with one reason are one decision.

    `overlapping`: the task of the due time before these has not ended. It matters only for a schedule that
    must not overlap, of which one due time is sent at once at most. Each decision's `decided_ms` is `now`.
    """
    if not due:
        return []
    policy = entry.policy
    whys = _whys(policy, due.times, now)
    if not policy.overlap:
        whys = [why or OVERLAPS for why in whys] if overlapping else _only_last(whys)
    if entry.one_off:
        whys = _only_first(whys)
    made = _Row(entry.name, round(now * 1000))
    if due.earlier_count and due.earlier_first is not None and due.earlier_last is not None:
        why = _why_earlier(policy, due, now, overlapping)
        made.skip(due.earlier_first, due.earlier_last, due.earlier_count, why)
    for at, why in zip(due.times, whys, strict=True):
        if why:
            made.skip(at, at, 1, why)
        else:
            made.send(at)
    return made.decisions


def window_seconds(
    entry: Entry, due: float, next_due: float | None, *, decided: float | None = None
) -> float:
    """How late a due time may still be sent, if it could not be published: seconds after `due`.

    The grace, if there is one; else until the next is due, and at least a minute after it was decided. One
    that has no next has a day.
    """
    if entry.policy.grace_seconds is not None:
        return entry.policy.grace_seconds
    own = _LONGEST_WINDOW if next_due is None or entry.one_off else next_due - due
    return max(own, max(0.0, (decided or due) - due) + _LEAST_WINDOW)


def _whys(policy: Policy, times: tuple[float, ...], now: float) -> list[str]:
    """Why each is skipped; empty: it is sent."""
    late = [now - at for at in times]
    misfired = sum(each > policy.misfire_seconds for each in late)
    whys = []
    for place, each in enumerate(late):
        if _too_late(policy, each):
            whys.append(_grace(policy))
        elif place >= misfired:
            whys.append("")
        else:
            # Counted from the last: of these, `later` misfired ones are later than this one.
            whys.append(_misfire(policy, later=misfired - place - 1, fresh=len(times) - misfired))
    return whys


def _misfire(policy: Policy, *, later: int, fresh: int) -> str:
    if policy.misfire is Misfire.SKIP:
        return SKIP
    if policy.misfire is Misfire.LATEST:
        return LATER if later + fresh else ""
    return "" if later < policy.most else _too_many(policy.most)


def _why_earlier(policy: Policy, due: Due, now: float, overlapping: bool) -> str:
    if due.earlier_last is not None and _too_late(policy, now - due.earlier_last):
        return _grace(policy)
    if not policy.overlap and overlapping:
        return OVERLAPS
    if due.earlier_last is not None and now - due.earlier_last > policy.misfire_seconds:
        if policy.misfire is Misfire.SKIP:
            return SKIP
        if policy.misfire is Misfire.LATEST:
            return LATER
    return _too_many(len(due.times))


def _too_late(policy: Policy, late: float) -> bool:
    return policy.grace_seconds is not None and late > policy.grace_seconds


def _grace(policy: Policy) -> str:
    return f"later than the grace of {policy.grace_seconds:g} s"


def _too_many(most: int) -> str:
    return f"more than {most} were missed"


def _only_last(whys: list[str]) -> list[str]:
    sent = [place for place, why in enumerate(whys) if not why]
    return [why or (LATER if place != sent[-1] else "") for place, why in enumerate(whys)]


def _only_first(whys: list[str]) -> list[str]:
    sent = [place for place, why in enumerate(whys) if not why]
    return [why or (ONCE if place != sent[0] else "") for place, why in enumerate(whys)]


class _Row:
    """Collects decisions; skipped ones in a row with one reason become one."""

    def __init__(self, schedule: str, decided_ms: int) -> None:
        self.decisions: list[Decision] = []
        self._schedule = schedule
        self._decided_ms = decided_ms

    def send(self, at: float) -> None:
        self._add(round(at * 1000), State.DUE, "", None, 1)

    def skip(self, first: float, last: float, count: int, why: str) -> None:
        first_ms: int | None = round(first * 1000)
        before = self.decisions[-1] if self.decisions else None
        if before is not None and before.state is State.SKIPPED and before.why == why:
            self.decisions.pop()
            first_ms, count = before.first_ms or before.due_ms, before.count + count
        self._add(round(last * 1000), State.SKIPPED, why, first_ms if count > 1 else None, count)

    def _add(self, due_ms: int, state: State, why: str, first_ms: int | None, count: int) -> None:
        self.decisions.append(
            Decision(
                schedule=self._schedule,
                due_ms=due_ms,
                state=state,
                why=why,
                decided_ms=self._decided_ms,
                first_ms=first_ms,
                count=count,
            )
        )
