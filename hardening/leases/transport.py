"""The worker's transport on Redis: messages are taken and leased in one step, in keys of our own.

kombu pops a message and notes it afterwards: whoever dies in between loses it, and so does a Redis that
is full. Here one script takes the next message of all lists and leases it. A script cannot wait, so an
idle channel waits beside it, with one connection for each list that is watched: `BLMOVE list list RIGHT
RIGHT` moves the last message to where it is, as soon as there is one. It is a bell that takes nothing,
also when nobody listens any more. Watched are the lists of the default priority, and others from the
first message on that was found there; all are looked at once a second.

Only the worker's consumer has this transport; whoever publishes keeps kombu's.

Here the worker's side of kombu's Redis transport is known, and in `consumer` what a broken connection does.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha1
from queue import Empty
from typing import Any
from uuid import uuid4

from kombu.message import Message as KombuMessage
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis import Redis, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, OutOfMemoryError

from hardening.stores.link import impatient

from . import scripts
from .holdings import Holdings
from .store import LeaseKeys, LeaseStore, pack
from .terms import Lease

__all__ = ["LeasedMessage", "LeasedPoller", "keys_of", "lease_connection", "open_store", "plain_keys_of"]

logger = logging.getLogger("hardening")

MOST_BELLS = 16
"""Lists beyond these are looked at once a second and no sooner: each costs a connection of each worker."""

_TAKE_SHA = sha1(scripts.TAKE.encode(), usedforsecurity=False).hexdigest()
_TAKE = "lease:take"
_BELL = "lease:bell"
_LOOK_EVERY_SECONDS = 1.0
_WAIT_SECONDS = 10
_ANSWER_WITHIN_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
_REPEAT_SECONDS = 30.0
_RENEWED_WITHIN_SECONDS = 2.0
_SOCKET_TIMEOUT_SECONDS = 20.0
_CLOSE_WITHIN_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0


def lease_connection(connection: Any, holdings: Holdings, lease: Lease, holder: str) -> Any:
    """Let a kombu connection to Redis open its transport as one with leases."""
    # kombu waits for ever for a Redis that is silent. Longer than a bell waits.
    options = connection.transport_options or {}
    connection.transport_options = {
        "socket_timeout": _SOCKET_TIMEOUT_SECONDS,
        **options,
        "sentinel_kwargs": impatient(options.get("sentinel_kwargs")),
    }
    own = connection.get_transport_cls
    # An attribute of the connection: it stays when kombu switches to another URL of a list.
    connection.get_transport_cls = lambda: _leased_class(own(), holdings, lease, holder)
    return connection


def open_store(
    channel: Any, *, lease: Lease, holder: str, timeout_seconds: float = _TIMEOUT_SECONDS
) -> LeaseStore:
    """A store on the Redis of a channel, with connections of its own that wait no longer than that."""
    pool = channel._get_pool()
    for name in ("socket_timeout", "socket_connect_timeout"):
        given = pool.connection_kwargs.get(name)
        pool.connection_kwargs[name] = min(given or timeout_seconds, timeout_seconds)
    return LeaseStore(
        Redis(connection_pool=pool),
        keys_of(channel),
        seconds=lease.seconds,
        holder=holder,
        quiet_seconds=lease.renew_every + _RENEWED_WITHIN_SECONDS,
    )


def keys_of(channel: Any) -> LeaseKeys:
    """Our keys beside those that the project named, or kombu's."""
    return LeaseKeys.beside(
        index=channel.unacked_index_key, messages=channel.unacked_key, prefix=channel.global_keyprefix
    )


def plain_keys_of(channel: Any) -> tuple[str, str]:
    """The index and the messages of plain workers."""
    prefix = channel.global_keyprefix
    return f"{prefix}{channel.unacked_index_key}", f"{prefix}{channel.unacked_key}"


def _leased_class(stock: Any, holdings: Holdings, lease: Lease, holder: str) -> Any:
    channel = type(
        f"Leased{stock.Channel.__name__}",
        (LeasedChannel, stock.Channel),
        {"holdings": holdings, "lease": lease, "holder": holder},
    )
    return type(f"Leased{stock.__name__}", (_LeasedTransport, stock), {"Channel": channel})


class LeasedQoS(kombu_redis.QoS):
    """kombu's ledger of a channel, with the worker's entries. Its sweep stays: it is of plain workers."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        mine: Any = self
        mine._on_collect.cancel()  # At its exit a process gives back what a channel took, and no other.
        holdings: Holdings = channel.holdings
        mine._delivered = holdings.delivered
        mine._dirty = holdings.dirty
        mine._quick_ack = holdings.dirty.add
        mine._quick_append = holdings.delivered.__setitem__
        mine._owner = os.getpid()

    def append(self: Any, message: Any, delivery_tag: str) -> None:
        """A message was delivered; it is leased already."""
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self: Any, delivery_tag: str) -> None:
        """The message is dealt with, whether or not this channel is open still."""
        self.channel.holdings.settle(delivery_tag)
        self._quick_ack(delivery_tag)

    def reject(self: Any, delivery_tag: str, requeue: bool = False) -> None:
        """Off the queue, or back into it behind the others."""
        if requeue:
            self.channel.holdings.give_back(delivery_tag, last=True)
        else:
            self.channel.holdings.settle(delivery_tag)
        self._quick_ack(delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """See `restore_unacked_once`."""
        self.restore_unacked_once()

    def restore_unacked_once(self: Any, stderr: Any = None) -> None:
        """The channel closes: with the worker, which gives back what it holds, or to be opened anew."""
        holdings: Holdings = self.channel.holdings
        if holdings.reconnecting or holdings.channel is not self.channel or self._owner != os.getpid():
            return
        back = holdings.give_back_all(started_tags())
        if back:
            logger.info("%d unacknowledged messages go back to their queues", len(back))


def started_tags() -> set[str]:
    """The delivery tags of requests whose task has begun in this worker."""
    from celery.worker.state import active_requests

    requests: list[Any] = list(active_requests)
    return {request.message.delivery_tag for request in requests}


class LeasedMessage(virtual.Message):
    """kombu's message of an envelope, also of one of which it makes none.

    Where a body is not base64, or headers are a list, kombu raises in the worker's main loop. Such a message
    carries the error instead, as one does that cannot be decompressed: its consumer is told that it cannot
    be decoded.
    """

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        try:
            super().__init__(payload, channel=channel, **kwargs)
        # Whatever a producer wrote; nothing here uses the connection.
        except Exception:
            self.errors = [sys.exc_info()]
            properties = payload["properties"]
            headers = payload.get("headers")
            KombuMessage.__init__(
                self,
                body=payload.get("body"),
                delivery_tag=properties["delivery_tag"],
                content_type=payload.get("content-type"),
                content_encoding=payload.get("content-encoding"),
                headers=headers if isinstance(headers, dict) else {},
                properties=properties,
                delivery_info=properties["delivery_info"],
                channel=channel,
                **kwargs,
            )


class _Bell:
    """One connection that waits for a list to have a message."""

    def __init__(self, client: Any, list_key: str, number: int) -> None:
        self.client = client
        self.list_key = list_key
        self.type = f"{_BELL}:{number}"
        self.since: float | None = None


class LeasedChannel:
    """What is different about a channel; mixed into kombu's, with or without Sentinel.

    Only the one that takes tasks leases; those of a project's own consumers on the same connection stay
    as kombu has them.
    """

    holdings: Holdings
    lease: Lease
    holder: str
    leases = False
    Message: Any = LeasedMessage

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self._bells: dict[str, _Bell] = {}
        self._bell_pool: Any = None
        self._without_acks: set[str] = set()
        self._taking: tuple[str, dict[str, str], float] | None = None
        self._script_known = False
        self._dry = False
        self._look_at = self._say_full_at = 0.0
        super().__init__(*args, **kwargs)
        self.handlers[_TAKE] = self._taken
        self.clock: Callable[[], float] = time.monotonic

    def lease_messages(self: Any) -> None:
        """This channel takes tasks: what it takes is leased from now on."""
        self.leases = True
        self.QoS = LeasedQoS
        if self._qos is not None:  # kombu looked at it when it connected.
            self._qos._on_collect.cancel()
            self._qos = None
        self.holdings.channel = self
        self._keys = keys_of(self)

    def basic_consume(self: Any, queue: str, *args: Any, **options: Any) -> Any:
        """Remembers the queues whose messages nobody acknowledges: replies to Celery's own questions."""
        if options.get("no_ack"):
            self._without_acks.add(queue)
        else:
            self._without_acks.discard(queue)
        return super().basic_consume(queue, *args, **options)  # type: ignore[misc]

    def look(self: Any, poller: Any) -> None:
        """Ask for the next message, or see to it that the bells are on."""
        now = self.clock()
        if self._taking is not None:
            if now - self._taking[2] > _ANSWER_WITHIN_SECONDS:
                self.client.connection.disconnect()
                raise RedisConnectionError(f"Redis did not answer within {_ANSWER_WITHIN_SECONDS:g} s")
            return
        if self._dry and now < self._look_at:
            return
        if self._register(poller, self.client, _TAKE):
            self._script_known = False
        lists = self._lists()
        self._send_take(lists, now)

    def _lists(self: Any) -> dict[str, str]:
        """The lists in the order in which they are asked, with the names of their queues."""
        queues = self._queue_cycle.consume(len(self.active_queues))
        prefix = self.global_keyprefix
        return {
            f"{prefix}{self._q_for_pri(queue, priority)}": queue
            for priority in self.priority_steps
            for queue in queues
        }

    def _send_take(self: Any, lists: dict[str, str], now: float) -> None:
        tag = uuid4().hex
        keys = self._keys
        script = ("EVALSHA", _TAKE_SHA) if self._script_known else ("EVAL", scripts.TAKE)
        self._taking = (tag, lists, now)
        # kombu's name for a command that is under way: no new credentials are sent meanwhile.
        self._in_poll, self._brpop_sent_at = self.client.connection, now
        self.client.connection.send_command(
            *script, len(lists) + 2, keys.index, keys.messages, *lists, tag, self.lease.seconds, self.holder
        )

    def _taken(self: Any) -> bool:
        """The script's answer is here."""
        taking, self._taking = self._taking, None
        self._in_poll = None
        connection = self.client.connection
        try:
            answer = self.client.parse_response(connection, "EVAL")
        except self.connection_errors:
            connection.disconnect()
            raise
        except NoScriptError:
            self._script_known = False
            return False
        except OutOfMemoryError as exc:
            self._is_full(exc)  # It was refused before it changed anything.
            return False
        finally:
            self._flush_brpop_reauth()
        self._script_known = True
        if taking is None:
            return False
        if answer is None:
            self._rest(_LOOK_EVERY_SECONDS)
            self._ring_later(taking[1])
            return False
        self._dry = False
        tag, lists, _ = taking
        list_key = bytes_to_str(answer[0])
        self._watch(list_key)
        return bool(self._deliver_leased(tag, list_key, lists[list_key], answer[1], taking[2]))

    def _is_full(self: Any, exc: Exception) -> None:
        self._rest(_PAUSE_SECONDS)
        if self.clock() >= self._say_full_at:
            self._say_full_at = self.clock() + _REPEAT_SECONDS
            logger.error("Redis is full: no message can be taken, and none is lost (%s)", exc)

    def _rest(self: Any, seconds: float) -> None:
        self._dry = True
        self._look_at = self.clock() + seconds

    def _deliver_leased(self: Any, tag: str, list_key: str, queue: str, item: bytes, since: float) -> bool:
        holdings: Holdings = self.holdings
        holdings.enter(tag, list_key=list_key, message=item, since=since)
        try:
            payload = loads(bytes_to_str(item))
            properties = payload["properties"]
            about = properties["delivery_info"]
            about.setdefault("published", properties["delivery_tag"])  # kombu gave it at the publish.
            about["list_key"] = list_key.removeprefix(self.global_keyprefix)
            properties["delivery_tag"] = tag
        # Whatever somebody pushed into the list by hand.
        except Exception as exc:
            self._set_aside(tag, list_key, item, exc)
            return False
        self._queue_cycle.rotate(queue)
        if queue not in self._active_queues:
            holdings.give_back(tag, untouched=True)  # The consumer was cancelled meanwhile.
            return False
        if queue in self._without_acks:
            holdings.settle(tag)
        self.connection._deliver(payload, queue)
        return True

    def _brpop_read(self: Any, **options: Any) -> bool:
        """kombu's way, without the script: the message is leased after it was popped."""
        if not self.leases:
            return bool(super()._brpop_read(**options))  # type: ignore[misc]
        try:
            try:
                answer = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            if not answer:
                raise Empty
            name = bytes_to_str(answer[0])
            tag, list_key = uuid4().hex, f"{self.global_keyprefix}{name}"
            since = self.clock()
            try:
                self.holdings.store.hold(tag, list_key=list_key, message=answer[1])
            except RedisError as exc:
                # The keeper finds that Redis does not know it, and tries again.
                logger.error("a message was taken and could not be leased yet: %s", exc)
            queue = name.rsplit(self.sep, 1)[0]
            return bool(self._deliver_leased(tag, list_key, queue, answer[1], since))
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _set_aside(self: Any, tag: str, list_key: str, item: bytes, exc: Exception) -> None:
        """Into the list of garbage, which a duty of intake reads, and out of the leased ones, in one step."""
        garbage = self._keys.garbage
        logger.error(
            "what was in the list %s is no message of kombu's (%s): it goes into the list %s",
            list_key,
            type(exc).__name__,
            garbage,
        )
        holdings: Holdings = self.holdings
        store = holdings.store
        try:
            if store is None:
                raise RedisConnectionError("the worker's own connection is not open yet")
            store.set_aside(tag, pack(list_key, self.holder, item))
        except RedisError as failure:
            # A Redis that is full, or away: nobody renews its lease, and the sweep gives it to others.
            logger.error("it could not be set aside now, and comes back: %s", failure)
        holdings.drop(tag)
        holdings.dirty.discard(tag)  # It was never in kombu's ledger.

    # The bells.

    def _watch(self: Any, list_key: str) -> None:
        if list_key not in self._bells and len(self._bells) < MOST_BELLS:
            number = len(self._bells)
            if self._bell_pool is None:
                # Apart from kombu's, which has ten connections unless the project asks for more.
                self._bell_pool = self._get_pool(asynchronous=True)
                self._bell_pool.max_connections = 2 * MOST_BELLS
            bell = _Bell(self.Client(connection_pool=self._bell_pool), list_key, number)
            bell.client.connection = None
            self._bells[list_key] = bell
            self.handlers[bell.type] = partial(self._rung, bell)

    def _ring_later(self: Any, lists: dict[str, str]) -> None:
        """Nothing is there: put the bells on."""
        poller = self.connection.cycle
        plain = {f"{self.global_keyprefix}{self._q_for_pri(queue, 0)}" for queue in lists.values()}
        for list_key in plain:
            self._watch(list_key)
        now = self.clock()
        for list_key, bell in list(self._bells.items()):
            if list_key not in lists:
                continue
            if bell.since is not None and now - bell.since > _WAIT_SECONDS + _ANSWER_WITHIN_SECONDS:
                bell.client.connection.disconnect()  # Half open: it would never ring.
                bell.since = None
            if bell.since is None:
                self._register(poller, bell.client, bell.type)
                bell.since = now
                bell.client.connection.send_command(
                    "BLMOVE", list_key, list_key, "RIGHT", "RIGHT", _WAIT_SECONDS
                )

    def _rung(self: Any, bell: _Bell) -> bool:
        bell.since = None
        try:
            bell.client.parse_response(bell.client.connection, "BLMOVE")
        except self.connection_errors:
            bell.client.connection.disconnect()
            raise
        except OutOfMemoryError as exc:
            self._is_full(exc)
            return False
        self._dry = False
        return False

    def _register(self: Any, poller: Any, client: Any, type_: str) -> bool:
        """See to it that a client's connection is open and polled. Whether it is a new one."""
        if poller._client_registered(self, client, type_):
            return False
        poller._register(self, client, type_)
        return True

    def _on_connection_disconnect(self: Any, connection: Any) -> None:
        client = self.__dict__.get("client")
        if client is not None and getattr(client, "connection", None) is connection:
            self._taking = None
        for bell in self._bells.values():
            if bell.client.connection is connection:
                bell.since = None
        super()._on_connection_disconnect(connection)  # type: ignore[misc]

    def _poll_error(self: Any, type_: str, **options: Any) -> None:
        if type_.startswith(("lease:",)):
            self.handlers[type_]()
        else:
            super()._poll_error(type_, **options)  # type: ignore[misc]

    def close(self: Any) -> None:
        """Give back what the script may just have taken; nobody made a request of it."""
        if not self.closed:
            self._finish_taking()
        super().close()  # type: ignore[misc]
        for bell in self._bells.values():
            bell.client.connection = None
        if self._bell_pool is not None:
            self._bell_pool.disconnect()

    def _finish_taking(self: Any) -> None:
        taking, self._taking = self._taking, None
        self._in_poll = None
        connection = getattr(self.client, "connection", None) if taking else None
        if taking is None or connection is None:
            return
        try:
            if not connection.can_read(timeout=_CLOSE_WITHIN_SECONDS):
                return
            answer = self.client.parse_response(connection, "EVAL")
        # The connection is broken: what was taken has a lease that nobody renews.
        except Exception:
            return
        if answer is not None:
            self.holdings.enter(taking[0], list_key=bytes_to_str(answer[0]), message=answer[1])
            self.holdings.give_back(taking[0])


class LeasedPoller(kombu_redis.MultiChannelPoller):
    """kombu's poller, for channels that look instead of popping."""

    def _register_BRPOP(self: Any, channel: Any) -> None:  # noqa: N802 - kombu's name
        if channel.leases and channel.lease.atomic_take:
            channel.look(self)
        else:
            super()._register_BRPOP(channel)  # type: ignore[misc]

    def on_readable(self: Any, fileno: int) -> Any:
        found = self._fd_to_chan.get(fileno)
        if found is not None and found[1].startswith("lease:"):
            # Also without prefetch credit: an answer is here, and may hold a message.
            return found[0].handlers[found[1]]()
        return super().on_readable(fileno)

    def maybe_restore_messages(self) -> None:
        """Nothing: the worker's step sweeps kombu's own keys, on every pool."""


class _LeasedTransport:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = LeasedPoller()
