"""When a fact is an incident, and what is to be told of it. Pure: changes the book that it is given.

One process looks at a time: it claims the look, looks, and writes what it saw. Dying in between leaves the
claim, which runs out. A fact opens an incident when it has held for long enough, and resolves it when it
has been missed for long enough by looks that knew: one that failed begins the wait anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardening.core.alerts import Fact

from .book import Book, Delivery, Incident, Pending, Phase
from .notice import News
from .texts import bounded

__all__ = ["LOOK_SECONDS", "MOST_NOTICES", "Terms", "claim_look", "facts_seen", "nothing_known"]

LOOK_SECONDS = 15.0
"""A look that is not over by then is another's."""

MOST_NOTICES = 3
"""Of one incident that wait for a channel. Beyond these the oldest goes: a later one says how it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Of one condition, with the channels that are told of it. Seconds."""

    every: float
    hold_looks: int = 1
    hold: float = 0.0
    gone: float = 60.0
    remind_every: float = 6 * 3600.0
    channels: tuple[str, ...] = ()


def claim_look(book: Book, terms: Terms, *, now: float, me: str) -> bool:
    """Whether it is for `me` to look now."""
    # No time lies farther ahead than its own length: the clock was set back where one does.
    if now < min(book.due, now + terms.every) or (book.by and now < min(book.until, now + LOOK_SECONDS)):
        return False
    book.by, book.until = me, now + LOOK_SECONDS
    return True


def facts_seen(book: Book, terms: Terms, facts: Sequence[Fact], *, now: float, me: str) -> None:
    """Write down a look. Nothing where the claim is another's by now."""
    if not _over(book, terms, now=now, me=me):
        return
    seen = bounded(list(facts), book.incidents)
    for fact in seen:
        _holds(book, terms, fact, now)
    for subject in book.incidents.keys() - {fact.subject for fact in seen}:
        _missed(book, terms, subject, now)


def nothing_known(book: Book, terms: Terms, *, now: float, me: str) -> None:
    """A look failed: what is open stays open."""
    if _over(book, terms, now=now, me=me):
        for incident in book.incidents.values():
            incident.absent = None


def _over(book: Book, terms: Terms, *, now: float, me: str) -> bool:
    if book.by != me:
        return False
    book.by, book.until, book.due = "", 0.0, now + terms.every
    return True


def _holds(book: Book, terms: Terms, fact: Fact, now: float) -> None:
    incident = book.incidents.setdefault(fact.subject, Incident(first=now))
    if incident.phase is Phase.RESOLVED:
        incident.phase, incident.first, incident.looks = Phase.PENDING, now, 0
    incident.summary, incident.detail, incident.link = fact.summary, fact.detail, fact.link
    incident.absent = None
    incident.looks = min(incident.looks + 1, terms.hold_looks)
    incident.first = min(incident.first, now)
    if incident.phase is Phase.PENDING:
        if incident.looks >= terms.hold_looks and now - incident.first >= terms.hold:
            incident.phase, incident.opened = Phase.OPEN, now
            _tell(book, terms, incident, News.OPENED, now)
    elif now - min(incident.told, now) >= terms.remind_every and not _reminded(incident):
        _tell(book, terms, incident, News.STILL, now)


def _missed(book: Book, terms: Terms, subject: str, now: float) -> None:
    incident = book.incidents[subject]
    if incident.phase is Phase.OPEN:
        incident.absent = now if incident.absent is None else min(incident.absent, now)
        if now - incident.absent >= terms.gone:
            incident.phase = Phase.RESOLVED
            incident.notices = [each for each in incident.notices if each.news is not News.STILL]
            _tell(book, terms, incident, News.RESOLVED, now)
    else:
        incident.phase = Phase.RESOLVED
    if incident.phase is Phase.RESOLVED and not incident.notices:
        del book.incidents[subject]


def _reminded(incident: Incident) -> bool:
    """Whether a reminder still waits to be told."""
    return bool(incident.notices) and incident.notices[-1].news is News.STILL


def _tell(book: Book, terms: Terms, incident: Incident, news: News, now: float) -> None:
    incident.told = now
    if terms.channels:
        book.count += 1
        to = {channel: Delivery() for channel in terms.channels}
        incident.notices = [*incident.notices, Pending(book.count, news, now, to)][-MOST_NOTICES:]
