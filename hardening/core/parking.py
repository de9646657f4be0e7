"""Letters parked on the broker while their store is down: a durable queue, emptied without a gap.

The argument. A letter is stored first and leaves the queue afterwards; dying in between means that
it is stored again, which the store takes for the same letter. RabbitMQ keeps what was delivered
until it is acknowledged. Redis has no such thing: kombu pops a message and only then notes that it
is under way, and dying in that gap would lose the letter. So on Redis the oldest entry is read in
place and removed, by value, after it was stored. Two readers would count a capture twice; a lock
with an expiry keeps them apart, and nothing but that count depends on it.

A letter that its store refuses for its own sake must not hold up those behind it. Its bytes go to a
second durable queue first and leave the first one afterwards: dying in between, it is in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from celery import Celery
from django.conf import settings
from kombu import Connection, Exchange, Queue
from kombu.utils.json import loads

from .broker import confirming_connection, publish_raw
from .errors import SinkUnavailable
from .letter import DeadLetter, dump_letter, load_letter

__all__ = [
    "DEAD_LETTER_QUEUE",
    "Drained",
    "LetterRefused",
    "drain_letters",
    "parking_queue",
    "publish_letter",
    "refused_queue",
]

DEAD_LETTER_QUEUE = "celery_hardening.dead_letters"
_LOCK_MILLISECONDS = 30_000
_UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

Entry = tuple[bytes, Callable[[], object]]
"""The bytes of an entry, and how to take it off the queue for good."""


class LetterRefused(SinkUnavailable):
    """The store takes letters, but not this one: trying again changes nothing until somebody acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How many entries left a queue: into the store, or, refused by it, into the second queue."""

    stored: int = 0
    refused: int = 0


def parking_queue() -> str:
    """The queue that keeps letters while their store is down: HARDENING["DEAD_LETTER_QUEUE"] or the default.

    Who parks and who takes in must name the same one.
    """
    configured = getattr(settings, "HARDENING", None)
    name = configured.get("DEAD_LETTER_QUEUE") if isinstance(configured, Mapping) else None
    return name if isinstance(name, str) and name else DEAD_LETTER_QUEUE


def refused_queue() -> str:
    """The queue that keeps what the store refuses."""
    return f"{parking_queue()}.refused"


def publish_letter(app: Celery, letter: DeadLetter, *, queue: str = DEAD_LETTER_QUEUE) -> None:
    """Keep a letter on the broker. Returns when the broker has it; raises otherwise."""
    with confirming_connection(app) as connection:
        publish_raw(
            connection,
            body=dump_letter(letter),
            content_type="application/json",
            content_encoding="utf-8",
            headers={"letter": letter.delivery_key},
            routing_key=queue,
            declare=(_queue(queue),),
        )


def drain_letters(
    app: Celery,
    store: Callable[[DeadLetter], None],
    *,
    reject: Callable[[bytes, Exception], None],
    limit: int,
    queue: str = DEAD_LETTER_QUEUE,
    refused: str | None = None,
    on_refused: Callable[[bytes, LetterRefused], None] = lambda _raw, _exc: None,
) -> Drained:
    """Hand up to `limit` letters from the broker to `store`, oldest first; returns what became of them.

    A letter leaves the broker only after `store` returned. When `store` raises, the letter and all
    behind it stay, in order, and the error is raised here. What is no letter goes to `reject`.

    With LetterRefused the entry, unchanged, goes to the queue `refused` (default: `queue` with
    ".refused" behind it), `on_refused` is told, and the next one has its turn. `refused` may be `queue`
    itself: what is refused goes to its end, and each entry has one turn.
    """
    target = refused or f"{queue}.refused"
    stored = set_aside = 0
    with confirming_connection(app) as connection, connection.channel() as channel:
        in_place = connection.transport.driver_type == "redis"
        if target == queue:
            limit = min(limit, _length(channel, queue, in_place=in_place))
        entries = _in_place if in_place else _delivered
        for raw, remove in entries(channel, queue) if limit > 0 else ():
            try:
                _hand_over(raw, store, reject)
                stored += 1
            except LetterRefused as exc:
                _set_aside(connection, raw, target)
                on_refused(raw, exc)
                set_aside += 1
            remove()
            if stored + set_aside >= limit:
                break
    return Drained(stored=stored, refused=set_aside)


def _hand_over(
    raw: bytes, store: Callable[[DeadLetter], None], reject: Callable[[bytes, Exception], None]
) -> None:
    try:
        letter = load_letter(raw)
    except (ValueError, RecursionError) as exc:
        reject(raw, exc)
    else:
        store(letter)


def _set_aside(connection: Connection, raw: bytes, queue: str) -> None:
    publish_raw(
        connection,
        body=raw,
        content_type="application/octet-stream",
        content_encoding="binary",
        headers={},
        routing_key=queue,
        declare=(_queue(queue),),
    )


def _length(channel: Any, queue: str, *, in_place: bool) -> int:
    if in_place:
        return int(_redis(channel).llen(f"{channel.global_keyprefix}{queue}"))
    _queue(queue)(channel).declare()
    return int(channel.queue_declare(queue=queue, passive=True).message_count)


def _delivered(channel: Any, queue: str) -> Iterator[Entry]:
    bound = _queue(queue)(channel)
    bound.declare()
    while (message := bound.get(no_ack=False)) is not None:
        # Not acknowledged when the store raises: closing the channel gives it back, first in line.
        yield _bytes(message.body), message.ack


def _in_place(channel: Any, queue: str) -> Iterator[Entry]:
    client = _redis(channel)
    key = f"{channel.global_keyprefix}{queue}"
    with _locked(client, f"{key}.reader") as locked:
        while locked and (item := client.lindex(key, -1)) is not None:
            yield _body(channel, item), partial(client.lrem, key, -1, item)


def _redis(channel: Any) -> Any:
    # A client of our own: kombu's adds the key prefix to some commands and not to others.
    from redis import Redis

    return Redis(connection_pool=channel.client.connection_pool)


def _body(channel: Any, item: bytes) -> bytes:
    try:
        return _bytes(channel.Message(loads(item), channel=channel).body)
    # Not kombu's envelope: somebody wrote into the list by hand. Kept as it is.
    except Exception:
        return _bytes(item)


@contextmanager
def _locked(client: Any, key: str) -> Iterator[bool]:
    token = uuid4().hex
    locked = bool(client.set(key, token, nx=True, px=_LOCK_MILLISECONDS))
    try:
        yield locked
    finally:
        if locked:
            client.eval(_UNLOCK, 1, key, token)


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(""), routing_key=name, durable=True, auto_delete=False)


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()
