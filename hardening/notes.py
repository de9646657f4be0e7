"""Notes: a bounded set of digests in the store of shared state, that workers leave for each other.

One document for each kind of note; the newest 3,000 of a day. It is written by compare-and-set, so that no
worker undoes what another has noted. Digests are cut to 64 bits, and those of one hour lie in one text:
the document is bounded by 50 KB and read in one step.

Which way it fails: nothing was noted. A store that does not answer is left alone for some seconds and said
so at most once a minute; whoever asks meanwhile is answered at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from celery import Celery

from .store import StateStore, update
from .stores.patient import PatientStore

__all__ = ["KEPT_HOURS", "MOST", "Notes", "notes_for"]

MOST = 3000
KEPT_HOURS = 24
_DIGITS = 16
_HOUR = 3600.0


class Notes(PatientStore):
    """The notes of one kind, as one worker makes and reads them. Used from its main loop or its greenlets."""

    def __init__(
        self,
        app: Celery,
        key: str,
        *,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(app, f"the notes {key!r} are neither read nor written", store=store, clock=clock)
        self._key = key
        self._own: OrderedDict[str, float] = OrderedDict()

    def add(self, digests: Iterable[str]) -> None:
        """Note them, in one step. What this process noted within the hour is not written again."""
        now = self._clock()
        fresh = list(dict.fromkeys(d for digest in digests if self._is_fresh(d := digest[:_DIGITS], now)))
        if not fresh:
            return

        def write(store: StateStore) -> bool:
            update(
                store,
                self._key,
                lambda found, moment: (_added(found, fresh, moment), None),
                ttl_seconds=(KEPT_HOURS + 1) * _HOUR,
            )
            return True

        if self.ask(write, False):
            self._own.update((digest, now) for digest in fresh)
            while len(self._own) > MOST:
                self._own.popitem(last=False)

    def has(self, digest: str) -> bool:
        """Whether it is noted. False where nobody knows."""
        short = digest[:_DIGITS]
        return self.ask(lambda store: _place(store.read(self._key).value, short) is not None, False)

    def take(self, digest: str) -> bool:
        """Whether it is noted; it is no longer, then."""
        short = digest[:_DIGITS]
        self._own.pop(short, None)
        found = self.has(digest)
        if found:
            self.ask(
                lambda store: update(
                    store,
                    self._key,
                    lambda document, _: (_without(document, short), None),
                    ttl_seconds=(KEPT_HOURS + 1) * _HOUR,
                ),
                None,
            )
        return found

    def _is_fresh(self, digest: str, now: float) -> bool:
        noted_at = self._own.get(digest)
        return noted_at is None or now - noted_at > _HOUR


_Hours = dict[str, str]


def _hours(document: Mapping[str, Any] | None) -> _Hours:
    hours = (document or {}).get("hours")
    rows = hours if isinstance(hours, dict) else {}
    return {hour: text for hour, text in rows.items() if hour.isdigit() and isinstance(text, str) and text}


def _place(document: Mapping[str, Any] | None, digest: str) -> tuple[str, int] | None:
    for hour, text in _hours(document).items():
        at = text.find(digest)
        while at >= 0 and at % _DIGITS:  # Across two of them.
            at = text.find(digest, at + 1)
        if at >= 0:
            return hour, at
    return None


def _added(document: Mapping[str, Any] | None, digests: list[str], now: float) -> dict[str, Any]:
    """With these, noted now; without what is too old or too much, the oldest first."""
    this = int(now // _HOUR)
    hours = {hour: text for hour, text in _hours(document).items() if int(hour) > this - KEPT_HOURS}
    for digest in digests:
        hours = _hours(_without({"hours": hours}, digest))
    hours[str(this)] = hours.get(str(this), "") + "".join(digests)
    surplus = sum(map(len, hours.values())) - MOST * _DIGITS
    for hour in sorted(hours, key=int):
        if surplus <= 0:
            break
        cut = min(surplus, len(hours[hour]))
        hours[hour] = hours[hour][cut:]
        surplus -= cut
    return {"hours": {hour: text for hour, text in hours.items() if text}}


def _without(document: Mapping[str, Any] | None, digest: str) -> dict[str, Any]:
    hours = _hours(document)
    while (place := _place({"hours": hours}, digest)) is not None:
        hour, at = place
        hours[hour] = hours[hour][:at] + hours[hour][at + _DIGITS :]
    return {"hours": hours}


_all: WeakKeyDictionary[Celery, dict[str, Notes]] = WeakKeyDictionary()


def notes_for(app: Celery, key: str) -> Notes:
    """The notes of one kind, of an app's worker in this process."""
    kinds = _all.setdefault(app, {})
    if key not in kinds:
        kinds[key] = Notes(app, key)
    return kinds[key]
