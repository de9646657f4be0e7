"""Looks at what is left: letters in their store, results, and what the broker and its stores still hold."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from celery import Celery

from hardening.core.identity import KEY_HEADER
from hardening.core.parking import parking_queue, refused_queue

from .facts import Letter
from .stage import Stage

__all__ = ["Evidence"]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNTOLD = ("pidbox", "celeryev", "unacked_index", "_kombu.binding")
_MOST_AT_ONCE = 1000


class Evidence:
    """Looks past the proxy. Each look is complete; errors of a server that is just away are raised."""

    def __init__(self, stage: Stage, app: Celery, known: Collection[str]) -> None:
        """`known`: the keys of the plan, by which a message that carries no id is told."""
        self._stage = stage
        self._app = app
        self._known = known
        self._whose: dict[Any, str] = {}

    def letters(self) -> list[Letter]:
        """All that are kept."""
        if self._stage.said["letters"]:
            return self._stored_letters()
        if not self._stage.said["hardened"]:
            return []
        queues = (parking_queue(), refused_queue())
        return [
            Letter(key=key, reason="on the broker")
            for place, key in self._entries(peek=True)
            if place in queues and key
        ]

    def states(self, keys: Iterable[str]) -> dict[str, str]:
        """The recorded results, by task id."""
        from redis import Redis

        backend: Any = self._app.backend
        found: dict[str, str] = {}
        wanted = list(keys)
        with Redis.from_url(self._stage.results_url) as client:
            for begin in range(0, len(wanted), _MOST_AT_ONCE):
                part = wanted[begin : begin + _MOST_AT_ONCE]
                names = [str(backend.get_key_for_task(key), "utf-8") for key in part]
                for key, raw in zip(part, client.mget(names), strict=True):
                    if raw:
                        found[key] = json.loads(raw).get("status", "")
        return found

    def held(self, *, peek: bool = False) -> list[str]:
        """The keys of all messages that are still somewhere, with repetition; "" where none is named.

        With `peek` RabbitMQ's are read too, which needs that no worker runs; else they are only counted.
        """
        letters_are_elsewhere = self._stage.said["letters"]
        queues = () if letters_are_elsewhere else (parking_queue(), refused_queue())
        return [key for place, key in self._entries(peek=peek) if place not in queues] + self._parked()

    def _stored_letters(self) -> list[Letter]:
        from django.apps import apps
        from django.db import connections

        # By its label: hardening knows no app that keeps letters.
        model: Any = apps.get_model("dlq", "DeadLetter")
        for connection in connections.all():
            connection.close()
        letters = []
        for letter in model.objects.order_by("replay_number", "occurrence").defer("sealed"):
            key = letter.delivery_key
            if key not in self._known:
                if letter.pk not in self._whose:
                    self._whose[letter.pk] = self._key_inside(letter.record()) or key
                key = self._whose[letter.pk]
            letters.append(Letter(key=key, reason=letter.reason, open=letter.state in ("open", "replaying")))
        return letters

    def _key_inside(self, record: Any) -> str:
        text = record.payload.body.decode("utf-8", "replace") + json.dumps(
            dict(record.payload.headers), default=str
        )
        return self._known_in(text)

    def _known_in(self, text: str) -> str:
        return next((found for found in _UUID.findall(text) if found in self._known), "")

    def _parked(self) -> list[str]:
        """Delayed tasks that wait in the database; those in Redis are seen there."""
        if self._stage.options.broker == "redis" or not self._stage.said["hardened"]:
            return []
        from hardening.conf import load_settings
        from hardening.delayed.store import chosen_delayed_store

        store = chosen_delayed_store(self._app, load_settings()[0].delayed_rules)
        keys: list[str] = []
        while page := store.page(offset=len(keys), limit=_MOST_AT_ONCE):
            keys += [entry.task_id for entry in page]
        return keys

    def _entries(self, *, peek: bool) -> Iterator[tuple[str, str]]:
        """(queue or place, key) of each message."""
        if self._stage.options.broker == "redis":
            return self._in_redis()
        return self._in_rabbitmq(peek=peek)

    def _in_redis(self) -> Iterator[tuple[str, str]]:
        from redis import Redis

        with Redis.from_url(self._stage.direct_url) as client:
            for raw_name in client.scan_iter(count=_MOST_AT_ONCE):
                name = raw_name.decode()
                if any(part in name for part in _UNTOLD):
                    continue
                kind = client.type(raw_name)
                if kind == b"list":
                    for entry in client.lrange(raw_name, 0, -1):
                        yield name, self._key_of_entry(entry, in_list=True) or ""
                elif kind == b"hash":
                    for entry in client.hvals(raw_name):
                        if (key := self._key_of_entry(entry, in_list=False)) is not None:
                            yield name, key

    def _key_of_entry(self, entry: bytes, *, in_list: bool) -> str | None:
        """The key; "" for a message that names none; None for what is no message."""
        # A leased message stands behind a line that says who holds it; kombu's own is the first of three.
        about, _, rest = entry.partition(b"\n")
        try:
            envelope = json.loads(rest or about)
            envelope = envelope[0] if isinstance(envelope, list) else envelope
            headers = envelope["headers"]
            key = headers.get(KEY_HEADER) or headers.get("letter") or headers.get("id")
            if key:
                return str(key)
            return self._known_in(base64.b64decode(envelope["body"]).decode("utf-8", "replace"))
        except (ValueError, LookupError, TypeError, AttributeError):
            return self._known_in(entry.decode("utf-8", "replace")) if in_list else None

    def _in_rabbitmq(self, *, peek: bool) -> Iterator[tuple[str, str]]:
        broker: Any = self._stage.broker
        listing = broker.rabbitmqctl("list_queues", "--quiet", "name", "messages")
        for line in listing.splitlines():
            name, _, number = line.rpartition("\t")
            if not number.isdigit() or any(part in name for part in _UNTOLD):
                continue
            keys = list(self._peeked(name, int(number))) if peek and int(number) else []
            yield from ((name, key) for key in keys)
            yield from ((name, "") for _ in range(int(number) - len(keys)))

    def _peeked(self, queue: str, most: int) -> Iterator[str]:
        from kombu import Connection

        with Connection(self._stage.direct_url) as connection:
            channel: Any = connection.channel()
            for _ in range(most):
                message = channel.basic_get(queue, no_ack=False)  # Given back with the channel.
                if message is None:
                    return
                headers = message.headers or {}
                key = headers.get(KEY_HEADER) or headers.get("letter") or headers.get("id")
                body = message.body if isinstance(message.body, bytes) else str(message.body).encode()
                yield str(key) if key else self._known_in(body.decode("utf-8", "replace"))
