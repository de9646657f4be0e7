"""The independent witness's account: every due time by plain arithmetic, and what became of it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil

__all__ = ["Account", "Received", "Row", "account", "due_times", "percentile"]


@dataclass(frozen=True, kw_only=True)
class Received:
    """A message as it came to the broker."""

    schedule: str
    due_ms: int
    id: str
    pid: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the tick store says of one due time, or of several that were skipped in a row."""

    schedule: str
    due_ms: int
    state: str
    why: str
    first_ms: int
    outcome: str = ""


@dataclass(kw_only=True)
class Account:
    """Numbers of due times; `problems` says which."""

    due: int = 0
    sent: int = 0
    skipped: int = 0
    doubled_messages: int = 0
    not_run: int = 0
    double: int = 0
    missed: int = 0
    stray: int = 0
    problems: list[str] = field(default_factory=list)


def due_times(anchor_ms: int, every_ms: int, until_ms: int) -> Iterator[int]:
    """After the anchor, up to that moment."""
    return iter(range(anchor_ms + every_ms, until_ms + 1, every_ms))


def account(
    expected: Mapping[str, Iterable[int]],
    received: Iterable[Received],
    runs: Iterable[str],
    rows: Iterable[Row],
    *,
    letters: Collection[str] = (),
    must_run: frozenset[str] = frozenset(),
) -> Account:
    """`runs`: the task id of each run that ended well; `letters`: of each dead letter. `must_run`: schedules
    whose messages do not expire.

    Missed: a due time that was neither sent nor is recorded as skipped or missed, with a reason; one whose
    message came and that has no row; one whose message came, whose task did not run, and that neither its
    row nor a dead letter says so of; one of `must_run` that did not run.
    Double: its task ran more than once, or its messages have more than one id. Stray: a message that is for
    no due time.
    """
    found = Account()
    messages: defaultdict[tuple[str, int], list[Received]] = defaultdict(list)
    for message in received:
        messages[message.schedule, message.due_ms].append(message)
    ran = Counter(runs)
    kept = list(rows)
    recorded, given_up = _by_due_time(kept)
    ended = {(row.schedule, row.due_ms) for row in kept if row.outcome in ("cancelled", "dead")}
    for schedule, times in expected.items():
        for due_ms in times:
            found.due += 1
            here = messages.pop((schedule, due_ms), [])
            if here:
                told = (schedule, due_ms) in ended or any(each.id in letters for each in here)
                _sent(found, here, ran, due_ms in recorded[schedule], told and schedule not in must_run)
            elif any(first <= due_ms <= last for first, last in given_up[schedule]):
                found.skipped += 1
            else:
                found.missed += 1
                state = recorded[schedule].get(due_ms, "no row")
                found.problems.append(f"missed: {schedule} {due_ms}: no message, and its row says {state}")
    for (schedule, due_ms), here in messages.items():
        if schedule in expected:
            found.stray += 1
            found.problems.append(f"stray: {schedule} {due_ms} is no due time, and was sent: {here}")
    return found


def _sent(found: Account, here: list[Received], ran: Counter[str], recorded: bool, may_not_run: bool) -> None:
    found.sent += 1
    found.doubled_messages += len(here) - 1
    ids = {each.id for each in here}
    times = sum(ran[each] for each in ids)
    what = f"{here[0].schedule} {here[0].due_ms}"
    if not times:
        found.not_run += 1
    if times > 1 or len(ids) > 1:
        found.double += 1
        found.problems.append(f"double: {what} ran {times} times: {here}")
    if not recorded:
        found.missed += 1
        found.problems.append(f"missed: {what} was sent, and has no row")
    elif not times and not may_not_run:
        found.missed += 1
        found.problems.append(f"missed: {what} was sent, and did not run: {here}")


def _by_due_time(
    rows: Iterable[Row],
) -> tuple[defaultdict[str, dict[int, str]], defaultdict[str, list[tuple[int, int]]]]:
    recorded: defaultdict[str, dict[int, str]] = defaultdict(dict)
    given_up: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        recorded[row.schedule][row.due_ms] = row.state
        if row.state in ("skipped", "missed") and row.why:
            given_up[row.schedule].append((row.first_ms, row.due_ms))
    return recorded, given_up


def percentile(values: Iterable[float], share: float) -> float | None:
    """The nearest rank; None of nothing."""
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None
