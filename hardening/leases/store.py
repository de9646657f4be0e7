"""LeaseStore: what is leased in one Redis, as calls. It knows our keys and scripts, and nothing of kombu."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from redis import Redis, RedisError

from . import scripts
from .envelope import named

__all__ = [
    "Entry",
    "Expired",
    "LeaseKeys",
    "LeaseStore",
    "Recovered",
    "Renewal",
    "Restored",
    "entry_of",
    "pack",
    "unpack",
]

RETURNED_SECONDS = 86_400.0
"""How long it is remembered that a message was given to others: longer than a process may be paused."""

LONGEST_PAUSE_SECONDS = 3.0
"""Between two sweeps, of which each worker does one a second. In a longer one nobody could renew."""

POSTPONED_SECONDS = 60.0
GARBAGE = "hardening.garbage"

_AT_ONCE = 500
_SCAN = 1000


@dataclass(frozen=True, slots=True)
class LeaseKeys:
    """The names of our keys, with the global key prefix."""

    index: str
    messages: str
    returned: str
    sweeps: str
    garbage: str
    """For what was found in a queue, or leased, and is no message."""

    @classmethod
    def beside(cls, *, index: str, messages: str, prefix: str = "") -> LeaseKeys:
        """Our keys beside those of a plain worker, which neither sees nor sweeps them."""
        return cls(
            index=f"{prefix}{index}.leased",
            messages=f"{prefix}{messages}.leased",
            returned=f"{prefix}{messages}.returned",
            sweeps=f"{prefix}{messages}.sweeps",
            garbage=f"{prefix}{GARBAGE}",
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A leased message: the list that it came from, who holds it, and the message itself."""

    list_key: str
    holder: str
    message: bytes


@dataclass(frozen=True, slots=True)
class Expired:
    """A message whose holder is silent."""

    tag: str
    entry: Entry


class Restored(NamedTuple):
    """A message that was given to others, and whose it was."""

    tag: str
    holder: str
    task_name: str = ""
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a sweep did: each message given to others, tag and reason of each that cannot be, and whether
    there may be more."""

    restored: tuple[Restored, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Renewal:
    """What could not be renewed: tags given to others, and tags of which Redis knows nothing."""

    lost: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


class LeaseStore:
    """The calls. Each raises one of `errors`; safe wherever `client` is."""

    errors = (RedisError, OSError)

    def __init__(
        self, client: Redis, keys: LeaseKeys, *, seconds: float, holder: str, quiet_seconds: float = 0.0
    ) -> None:
        """`seconds` is the lease; `quiet_seconds` the time in which every living worker renews again."""
        self.client = client
        self.keys = keys
        self._seconds = seconds
        self.quiet_seconds = quiet_seconds
        self._holder = holder
        self._hold = client.register_script(scripts.HOLD)
        self._renew = client.register_script(scripts.RENEW)
        self._settle = client.register_script(scripts.SETTLE)
        self._give_back = client.register_script(scripts.GIVE_BACK)
        self._expired = client.register_script(scripts.EXPIRED)
        self._restore = client.register_script(scripts.RESTORE)
        self._adopt = client.register_script(scripts.ADOPT)
        self._aside = client.register_script(scripts.SET_ASIDE)

    def probe(self) -> None:
        """Use each command that a worker cannot do without. Raises redis-py's error where one is refused."""
        self.adopt("")
        self.settle("")
        self.client.eval("return redis.call('ZADD', KEYS[1], 'XX', 0, '')", 1, self.keys.index)
        nothing: str = f"{self.keys.garbage}.probe"
        client: Any = self.client
        client.blmove(nothing, nothing, 0.01, "RIGHT", "RIGHT")

    @property
    def _pair(self) -> list[str]:
        return [self.keys.index, self.keys.messages]

    def hold(self, tag: str, *, list_key: str, message: bytes) -> None:
        """Lease a message that is in no list: it was taken by other means, or Redis lost it."""
        self._hold(keys=self._pair, args=[tag, self._seconds, pack(list_key, self._holder, message)])

    def renew(self, tags: Iterable[str]) -> Renewal:
        """A new lease for each; says which could not have one."""
        lost: list[str] = []
        vanished: list[str] = []
        for some in _batches(tags):
            gone, unknown = self._renew(keys=[*self._pair, self.keys.returned], args=[self._seconds, *some])
            lost += map(_text, gone)
            vanished += map(_text, unknown)
        return Renewal(tuple(lost), tuple(vanished))

    def settle(self, tag: str) -> bool:
        """Take a message off for good. False: it was given to others before; they have it or had it."""
        return int(self._settle(keys=[*self._pair, self.keys.returned], args=[tag])) >= 0

    def give_back(self, tag: str, *, list_key: str, message: bytes, last: bool = False) -> bool:
        """Put a held message back, to be taken next, or `last`. False: it went back before."""
        args: list[Any] = [tag, message, RETURNED_SECONDS, "LPUSH" if last else "RPUSH"]
        return bool(self._give_back(keys=[*self._pair, self.keys.returned, list_key], args=args))

    def expired(self, most: int) -> list[Expired]:
        """Messages whose lease ran out, those first that ran out first."""
        args = [most, LONGEST_PAUSE_SECONDS, self.quiet_seconds, self._seconds]
        found = self._expired(keys=[*self._pair, self.keys.sweeps], args=args)
        expired = []
        for tag, packed in found:
            entry = entry_of(packed)
            if entry is not None:
                expired.append(Expired(_text(tag), entry))
            else:
                self.set_aside(_text(tag), packed)
        return expired

    def recover(self, most: int, again: Callable[[bytes, str], bytes]) -> Recovered:
        """Give what ran out to others, in three round trips; `again` makes it of a message and its holder.

        One that its list refuses is tried again after a minute: it must not stand in the way of the rest.
        """
        expired = self.expired(most)
        restored, failed = [], []
        with self.client.pipeline(transaction=False) as pipe:
            for each in expired:
                message = again(each.entry.message, each.entry.holder)
                self.restore(each.tag, list_key=each.entry.list_key, message=message, pipe=pipe)
            answers: list[Any] = pipe.execute(raise_on_error=False) if expired else []
        for each, answer in zip(expired, answers, strict=True):
            if isinstance(answer, Exception):
                failed.append((each.tag, str(answer)))
                later = self.client.time()[0] + POSTPONED_SECONDS
                self.client.zadd(self.keys.index, {each.tag: later}, xx=True)
            elif answer:
                restored.append(Restored(each.tag, each.entry.holder, *named(each.entry.message)))
        more = len(expired) == most and bool(restored)
        return Recovered(tuple(restored), tuple(failed), more)

    def set_aside(self, tag: str, packed: bytes) -> None:
        """Into the list of garbage, and out of what is leased."""
        self._aside(keys=[*self._pair, self.keys.garbage], args=[tag, packed])

    def restore(self, tag: str, *, list_key: str, message: bytes, pipe: Any = None) -> bool:
        """Give an expired message to others. False: it was renewed or restored meanwhile.

        In a `pipe` the answer comes with the others.
        """
        keys = [*self._pair, self.keys.returned, list_key, self.keys.sweeps]
        args: list[Any] = [tag, message, RETURNED_SECONDS, LONGEST_PAUSE_SECONDS]
        return bool(self._restore(keys=keys, args=args, client=pipe))

    def adopt(self, tag: str) -> bool:
        """Cover such a message with a lease: it is restored when nobody renews it."""
        return bool(self._adopt(keys=self._pair, args=[tag, self._seconds]))

    def held(self) -> Iterator[tuple[str, float, Entry]]:
        """Tag, seconds until its lease ends, and entry of each message that anybody holds."""
        seconds, micros = self.client.time()
        scored: Any = self.client.zscan_iter(self.keys.index, count=_SCAN)
        for tag, until in scored:
            packed: Any = self.client.hget(self.keys.messages, tag)
            entry = entry_of(packed)
            if entry is not None:
                yield _text(tag), until - seconds - micros / 1e6, entry


def pack(list_key: str, holder: str, message: bytes) -> bytes:
    """An entry as it is kept. The script TAKE writes the same."""
    return json.dumps([list_key, holder]).encode() + b"\n" + message


def unpack(packed: bytes) -> Entry:
    """An entry that was kept."""
    about, _, message = packed.partition(b"\n")
    list_key, holder = json.loads(about)
    return Entry(list_key, holder, message)


def entry_of(packed: bytes | None) -> Entry | None:
    """An entry, or None for what is none."""
    try:
        return unpack(packed) if packed else None
    except (ValueError, TypeError, RecursionError):
        return None


def _batches(tags: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(tags)
    while some := list(islice(rest, _AT_ONCE)):
        yield some


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
