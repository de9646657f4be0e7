"""Holdings: what one worker holds, over all of its connections.

The argument. kombu's ledger of unacknowledged messages belongs to a channel, and ends with it: a closed
channel gives everything back, also what is running, and an acknowledgement that comes later finds nobody
to take it. On Redis neither is needed, since a delivery tag is valid on any connection. So the ledger is
the worker's: each new channel adopts it, nothing goes back and nothing is dropped while the worker lives,
and its keeper renews all that is in it.

An acknowledgement is noted here before it is sent. Sent and confirmed, it is forgotten. Not sent, or the
answer lost: it stays noted, the message stays leased, and it is sent again once a second; sending it
twice is harmless. Dying with one noted: the lease runs out and the work runs once more; that is the
window of every acknowledgement.

Used by the main loop, by greenlets and by the keeper's thread: only single steps on dicts, no locks.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from .envelope import as_redelivered

if TYPE_CHECKING:  # redis-py is there only where Redis is the broker.
    from .store import LeaseStore, Renewal

__all__ = ["Held", "Holdings", "News", "NewsOf"]


REST_SECONDS = 0.9
"""After an acknowledgement that Redis did not take; what waits is tried once a second."""


class NewsOf(Enum):
    """What the main loop is to be told."""

    LOST = "lost"
    """A message that this worker holds was given to others."""

    LATE = "late"
    """A message was acknowledged that had been given to others."""

    HELD_AGAIN = "held again"
    """Redis had forgotten a message that this worker holds; it was leased anew."""

    RECOVERED = "recovered"
    """A message of a silent worker was given to others."""

    FAILED = "failed"
    """The keeper could not do its work."""

    WEDGED = "wedged"
    """The main loop gave no sign of life for too long: nothing was renewed."""


@dataclass(frozen=True, slots=True)
class News:
    """One piece of news."""

    of: NewsOf
    tag: str = ""
    message: Any = None
    """kombu's, where this worker has it."""

    about: str = ""
    task: tuple[str, str] = ("", "")
    """Name and id, where the message is not at hand."""


@dataclass(slots=True)
class Held:
    """One delivery."""

    tag: str
    list_key: str
    message: bytes
    """As it was in the list."""

    leased_from: float
    """When its lease was last asked for, by the monotonic clock: it lasts a lease from here at least."""

    lost: bool = False
    untouched: bool = False
    """Whether it goes back as if it had never been taken."""


class _Ending(Enum):
    SETTLED = "settled"
    BACK_NEXT = "back, to be taken next"
    BACK_LAST = "back, behind the others"


class _Delivered(OrderedDict[str, Any]):
    """kombu sets an attribute on its ledger, which a plain dict does not allow."""

    restored = False


class Holdings:
    """The ledger of one worker."""

    def __init__(self) -> None:
        self.delivered = _Delivered()
        """kombu's ledger: tag -> its message."""

        self.dirty: set[str] = set()
        """kombu's note of the tags that were acknowledged."""

        self.news: deque[News] = deque(maxlen=10_000)
        self.channel: Any = None
        """The channel that takes messages now."""

        self.reconnecting = False
        self.store: LeaseStore | None = None
        self.postponed: dict[str, Any] = {}
        """Requests that wait for their lease to be sure, by tag; see `starting`."""

        self.on_late: Callable[[Any], None] | None = None
        """Told of a message whose acknowledgement came after others had been given it."""

        self._resting_until = 0.0
        self._held: dict[str, Held] = {}
        self._ending: dict[str, _Ending] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, tag: object) -> bool:
        return tag in self._held

    def enter(self, tag: str, *, list_key: str, message: bytes, since: float | None = None) -> None:
        """A message was taken, by a command that was sent at `since` (monotonic)."""
        self._held[tag] = Held(tag, list_key, message, time.monotonic() if since is None else since)

    def drop(self, tag: str) -> None:
        """Forget a message that others have, and whose work has not begun here."""
        if self._held.pop(tag, None) is not None:
            self._ending.pop(tag, None)
            self.postponed.pop(tag, None)
            self.dirty.add(tag)

    def held(self, tag: str) -> Held | None:
        """What is held under a tag."""
        return self._held.get(tag)

    def is_ours(self, tag: str) -> bool:
        """Whether a delivery is still this worker's alone: held, and not given to others."""
        held = self._held.get(tag)
        return held is not None and not held.lost

    def tags(self) -> list[str]:
        """The tags to renew."""
        return [held.tag for held in list(self._held.values()) if not held.lost]

    def is_ending(self, tag: str) -> bool:
        """Whether its acknowledgement waits to be sent."""
        return tag in self._ending

    def unsent(self) -> int:
        """How many acknowledgements wait to be sent."""
        return len(self._ending)

    def settle(self, tag: str) -> None:
        """The message is dealt with: take it off for good, now or as soon as Redis answers."""
        self._end(tag, _Ending.SETTLED)

    def give_back(self, tag: str, *, last: bool = False, untouched: bool = False) -> None:
        """Give the message to others, now or as soon as Redis answers; `untouched` if nobody began it."""
        self._end(tag, _Ending.BACK_LAST if last else _Ending.BACK_NEXT, untouched=untouched)

    def give_back_all(self, started: Iterable[str] = ()) -> list[str]:
        """Give back everything, what was taken first to be taken next; returns the tags.

        Those not `started` go back as if they had never been taken.
        """
        untouched = set(self._held) - set(started)
        back = [tag for tag in reversed(list(self._held)) if tag not in self._ending]
        for tag in back:
            self._end(tag, _Ending.BACK_NEXT, untouched=tag in untouched)
        return back

    def send_unsent(self) -> None:
        """Send the acknowledgements that could not be sent."""
        for tag in list(self._ending):
            if not self._send(tag):
                return

    def renewed(self, tags: Iterable[str], since: float, renewal: Renewal, store: LeaseStore) -> None:
        """Take in what the keeper learnt when it renewed `tags`, by a command sent at `since`."""
        refused = {*renewal.lost, *renewal.vanished}
        for tag in tags:
            held = self._held.get(tag)
            if held is not None and tag not in refused:
                held.leased_from = since
        for tag in renewal.lost:
            held = self._held.get(tag)
            if held is not None and tag not in self._ending:
                held.lost = True
                self.news.append(News(NewsOf.LOST, tag, self.delivered.get(tag)))
        for tag in renewal.vanished:
            held = self._held.get(tag)
            if held is None or tag in self._ending:
                continue  # Acknowledged while the renewal was on its way.
            store.hold(tag, list_key=held.list_key, message=held.message)
            held.leased_from = since
            if tag in self._held and tag not in self._ending:
                self.news.append(News(NewsOf.HELD_AGAIN, tag, self.delivered.get(tag)))
            else:
                store.settle(tag)  # Acknowledged between the two.

    def _is_resting(self) -> bool:
        """Whether Redis took none a moment ago: each that is tried keeps the main loop waiting."""
        return time.monotonic() < self._resting_until

    def _end(self, tag: str, ending: _Ending, *, untouched: bool = False) -> None:
        held = self._held.get(tag)
        if held is None:
            return
        held.untouched = untouched
        self._ending.setdefault(tag, ending)
        if not self._is_resting():
            self._send(tag)

    def _send(self, tag: str) -> bool:
        held, ending, store = self._held.get(tag), self._ending.get(tag), self.store
        if held is None or ending is None:
            return True
        if store is None:
            return False
        try:
            if ending is _Ending.SETTLED:
                in_time = store.settle(tag)
            else:
                message = held.message if held.untouched else as_redelivered(held.message)
                store.give_back(
                    tag, list_key=held.list_key, message=message, last=ending is _Ending.BACK_LAST
                )
                in_time = True
        except store.errors as exc:
            self._resting_until = time.monotonic() + REST_SECONDS
            self.news.append(News(NewsOf.FAILED, tag, about=f"an acknowledgement waits: {exc!r}"))
            return False
        message_of_kombu = self.delivered.get(tag)
        self._held.pop(tag, None)
        self._ending.pop(tag, None)
        if not in_time:
            self.news.append(News(NewsOf.LATE, tag, message_of_kombu))
            if self.on_late is not None and message_of_kombu is not None:
                self.on_late(message_of_kombu)  # At once: the other copy may be about to begin.
        return True
