"""Who delivers which notice, and when again. Pure: changes the book that it is given.

A delivery is claimed, made, and struck out of the book. Dying after it was made and before it is struck
out, it is made again by another when the claim has run out: at least once, and once as a rule. Each channel
has its own tries and waits, and gets the notices of an incident in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

from .book import Book, Delivery, Incident, Pending, Phase

__all__ = ["CLAIM_SECONDS", "KEPT_SECONDS", "Task", "give_up", "next_moment", "settle", "take", "wait_after"]

CLAIM_SECONDS = 60.0
KEPT_SECONDS = 24 * 3600.0
"""A notice that a channel has not taken by then is given up for it."""

_FIRST_WAIT, _LONGEST_WAIT = 5.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A delivery that was claimed; `incident` as it was then."""

    subject: str
    incident: Incident
    notice: Pending
    channel: str


def take(book: Book, room: Mapping[str, int], *, now: float, me: str) -> list[Task]:
    """Claim what is due, on each channel as much as there is room for."""
    left, taken = dict(room), []
    for subject, incident in book.incidents.items():
        for channel, (notice, delivery) in _foremost(incident).items():
            if left.get(channel, 0) > 0 and _due(delivery, now) <= now:
                left[channel] -= 1
                delivery.tries, delivery.by, delivery.until = delivery.tries + 1, me, now + CLAIM_SECONDS
                taken.append(Task(subject=subject, incident=copy(incident), notice=notice, channel=channel))
    return taken


def settle(book: Book, number: int, channel: str, *, delivered: bool, now: float, me: str) -> None:
    """What became of a delivery. That of a notice which is not in the book any more is forgotten."""
    for subject, incident in list(book.incidents.items()):
        for notice in incident.notices:
            delivery = notice.to.get(channel) if notice.number == number else None
            if delivery is None:
                continue
            if delivered:
                del notice.to[channel]
            elif delivery.by == me:
                delivery.by, delivery.until, delivery.due = "", 0.0, now + wait_after(delivery.tries)
        _tidy(book, subject)


def give_up(book: Book, *, now: float) -> list[tuple[str, str]]:
    """Strike out what is too old, and say which channel was not told of which subject."""
    lost = []
    for subject, incident in list(book.incidents.items()):
        for notice in incident.notices:
            if now - notice.at > KEPT_SECONDS:
                lost += [(channel, subject) for channel in notice.to]
                notice.to.clear()
        _tidy(book, subject)
    return lost


def next_moment(book: Book, *, now: float) -> float:
    """When there is something to be done again: a look, or a delivery that nobody makes by then."""
    moments = [
        _due(delivery, now)
        for incident in book.incidents.values()
        for _, delivery in _foremost(incident).values()
    ]
    return min([max(book.due, book.until), *moments])


def wait_after(tries: int) -> float:
    """Seconds from a failure to the next try."""
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(tries - 1, 10))


def _foremost(incident: Incident) -> dict[str, tuple[Pending, Delivery]]:
    """For each channel the oldest notice that it has not taken."""
    found: dict[str, tuple[Pending, Delivery]] = {}
    for notice in incident.notices:
        for channel, delivery in notice.to.items():
            found.setdefault(channel, (notice, delivery))
    return found


def _due(delivery: Delivery, now: float) -> float:
    # As in policy.py: nothing lies farther ahead than its own length.
    if delivery.by:
        return min(delivery.until, now + CLAIM_SECONDS)
    return min(delivery.due, now + _LONGEST_WAIT)


def _tidy(book: Book, subject: str) -> None:
    incident = book.incidents[subject]
    incident.notices = [notice for notice in incident.notices if notice.to]
    if incident.phase is Phase.RESOLVED and not incident.notices:
        del book.incidents[subject]
