"""The pace that all who send to one queue share: one row a queue says when the next message may go.

The argument. Who wants to send n messages at r a second moves `next_at` by n / r, from where it is, by
compare-and-set on the row's version, and waits until where it was. Whoever loses the comparison reads again.
So any two who send have different stretches of time, whatever process they are in, and what they send
together in a stretch is no more than the faster one of them may. Who dies after it moved the row has wasted
its stretch: slower, never faster. Times are the database's.

A stretch that nobody took is gone, but for `bank_seconds`: who was late a little may catch up, and a duty
that has a turn every few seconds may send in it what the time since the last one allowed.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ..models import SendingPace

__all__ = ["reserve"]

_TRIES = 50
_LONGEST_AHEAD_SECONDS = 600.0
"""A row that is further ahead was written by a clock that was wrong: nobody waits for it."""


def reserve(
    queue: str,
    count: int,
    per_second: float,
    *,
    now: datetime,
    alias: str,
    bank_seconds: float = 0.2,
    longest_wait: float | None = None,
) -> float | None:
    """Take the time of `count` messages. Returns the seconds to wait before they may go.

    None, with nothing taken: the wait would be longer than `longest_wait`, or others were always faster.
    """
    rows = SendingPace.objects.using(alias)
    for _ in range(_TRIES):
        found = rows.filter(pk=queue).values_list("next_at", "version").first()
        if found is None:
            # Begins in the past by nothing: a new queue has nothing in the bank.
            SendingPace.objects.using(alias).bulk_create(
                [SendingPace(queue=queue, next_at=now)], ignore_conflicts=True
            )
            continue
        next_at, version = found
        if next_at - now > timedelta(seconds=max(_LONGEST_AHEAD_SECONDS, 2 * count / per_second)):
            next_at = now
        start = max(next_at, now - timedelta(seconds=bank_seconds))
        wait = max(0.0, (start - now).total_seconds())
        if longest_wait is not None and wait > longest_wait:
            return None
        after = start + timedelta(seconds=count / per_second)
        if rows.filter(pk=queue, version=version).update(next_at=after, version=version + 1):
            return wait
    return None
