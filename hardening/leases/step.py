"""The boot steps of leases: the keeper's life, the main loop's signs of life, and its ear for news."""

from __future__ import annotations

import logging
import time
from collections import Counter
from functools import partial
from typing import Any

from celery import bootsteps
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from hardening.core.events import orphan_recovered, tell
from hardening.gate import EX_CONFIG
from hardening.shutdown.pools import hands_on
from hardening.shutdown.request import OPEN
from hardening.twins.watch import twins_for

from .auditor import audit_in_turn
from .holdings import Holdings, News, NewsOf
from .starting import dropped, start_postponed
from .store import LeaseStore
from .strays import Strays
from .transport import open_store, plain_keys_of

__all__ = ["LeaseUpkeep", "Leases"]

logger = logging.getLogger("hardening")

BEAT_EVERY_SECONDS = 1.0
PLAIN_SWEEP_EVERY_SECONDS = 5.0
AUDIT_EVERY_SECONDS = 60.0
STRAYS_EVERY_SECONDS = 15.0
_REPEAT_FAILURE_SECONDS = 30.0


class Leases(bootsteps.StartStopStep):
    """Opens the worker's own connections with each of the consumer's; ends them after it gave back."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def include_if(self, consumer: Any) -> bool:
        """Only where messages are leased."""
        return bool(getattr(consumer, "leased", False))

    def start(self, consumer: Any) -> None:
        """The pool has forked, nothing was taken yet."""
        channel = consumer.connection.default_channel
        holdings: Holdings = consumer.holdings
        about = {"lease": consumer.lease, "holder": consumer.holder}
        old, holdings.store = holdings.store, open_store(channel, **about)
        if old is None:
            _refuse_without_commands(holdings.store)
        else:
            old.client.connection_pool.disconnect(inuse_connections=False)
        # What the thread needs is made here: nothing of kombu runs in it.
        bound = min(2.0, consumer.lease.renew_every / 2)
        store = open_store(channel, **about, timeout_seconds=bound)
        consumer.keeper.use(lambda: store)
        consumer.keeper.also = twins_for(consumer.app).life_key(channel.global_keyprefix)
        consumer.keeper.start()

    def stop(self, consumer: Any) -> None:
        """Nothing: it is called when the connection breaks, and at the beginning of a shutdown."""

    def shutdown(self, consumer: Any) -> None:
        """The channel is closed, everything was given back."""
        consumer.keeper.stop()
        holdings: Holdings = consumer.holdings
        holdings.send_unsent()
        if holdings.unsent():
            logger.warning(
                "%d acknowledgements could not be sent; that work runs once more", holdings.unsent()
            )
        if holdings.store is not None:
            holdings.store.client.connection_pool.disconnect()


def _refuse_without_commands(store: LeaseStore) -> None:
    """A user of Redis who may not do what leases need would take nothing, and reconnect for ever."""
    try:
        store.probe()
    except ResponseError as exc:
        if isinstance(exc, (OutOfMemoryError, ReadOnlyError)):
            return  # It passes.
        logger.critical(
            "the worker does not start: Redis refuses a command that leases need (%s). Allow its user EVAL, "
            "EVALSHA, SCRIPT LOAD, BLMOVE, TIME and the commands on hashes, lists and sorted sets, on the "
            "keys of kombu and on *.leased, *.returned, *.sweeps, *.audited and hardening*",
            exc,
        )
        raise SystemExit(EX_CONFIG) from exc


class LeaseUpkeep(bootsteps.StartStopStep):
    """On the consumer's timer."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._entries: list[Any] = []
        self._reader = NewsReader()
        self._strays: Strays | None = None

    def include_if(self, consumer: Any) -> bool:
        """Only where messages are leased."""
        return bool(getattr(consumer, "leased", False))

    def start(self, consumer: Any) -> None:
        """Begin anew with each connection."""
        self._cancel()
        self._strays = self._strays or Strays(consumer.holdings)
        consumer.holdings.on_late = twins_for(consumer.app).on_late_ack
        consumer.read_lease_news = partial(self._reader.read, consumer)
        repeat = consumer.timer.call_repeatedly
        self._entries = [
            repeat(BEAT_EVERY_SECONDS, self._beat, (consumer,)),
            repeat(PLAIN_SWEEP_EVERY_SECONDS, _sweep_plain_keys, (consumer,)),
            repeat(AUDIT_EVERY_SECONDS, _audit, (consumer,)),
            repeat(STRAYS_EVERY_SECONDS, self._give_back_strays),
        ]

    def stop(self, consumer: Any) -> None:
        """Nothing: a worker that shuts down goes on until its tasks have ended."""

    def shutdown(self, consumer: Any) -> None:
        """The end."""
        self._cancel()
        self._reader.read(consumer)

    def _beat(self, consumer: Any) -> None:
        try:
            consumer.keeper.beat()
            consumer.holdings.send_unsent()
            self._reader.read(consumer)
            start_postponed(consumer)
        # The outermost loop of a duty: a failure is logged, the next turn tries again.
        except Exception:
            logger.exception("the upkeep of leases failed; it is tried again in a second")

    def _give_back_strays(self) -> None:
        try:
            found = self._strays.give_back() if self._strays is not None else []
        # The outermost loop of a duty: the next turn tries again.
        except Exception:
            logger.exception("messages without an owner could not be looked for")
            return
        for message in found:
            task_id = str((getattr(message, "headers", None) or {}).get("id", message))
            logger.error(
                "nothing in this worker would have ended the message of task %s: it goes back",
                task_id,
                extra={"task_id": task_id},
            )

    def _cancel(self) -> None:
        for entry in self._entries:
            entry.cancel()
        self._entries = []


def _sweep_plain_keys(consumer: Any) -> None:
    """What plain workers left behind is given to others after their time-out, on every pool."""
    channel = consumer.holdings.channel
    if channel is None or channel.closed:
        return
    try:
        channel.qos.restore_visible(num=channel.unacked_restore_limit, interval=1)
    # A broken connection shows itself to the consumer's loop.
    except Exception as exc:
        logger.debug("the keys of plain workers could not be looked at: %r", exc)


def _audit(consumer: Any) -> None:
    """What no sweep could see is found and covered again, by one worker a minute."""
    holdings: Holdings = consumer.holdings
    if holdings.store is None or holdings.channel is None:
        return
    try:
        found = audit_in_turn(
            holdings.store, plain_keys_of(holdings.channel), every_seconds=AUDIT_EVERY_SECONDS
        )
    # A broken connection shows itself to the consumer's loop.
    except Exception as exc:
        logger.debug("messages without a lease could not be looked for: %r", exc)
        return
    if found:
        logger.error(
            "%d message(s) had no lease and would never have come back; they have one now: %s",
            len(found),
            ", ".join(found[:10]),
        )


class NewsReader:
    """Says what the keeper and the ledger have to say, each failure only now and then."""

    def __init__(self) -> None:
        self._failed_at: float | None = None

    def read(self, consumer: Any) -> None:
        """Read all the news there are."""
        holdings: Holdings = consumer.holdings
        recovered: Counter[str] = Counter()
        while holdings.news:
            news = holdings.news.popleft()
            if news.of is NewsOf.RECOVERED:
                recovered[news.about] += 1
                name, task_id = news.task
                tell(
                    orphan_recovered,
                    app=consumer.app,
                    task_id=task_id,
                    task_name=name,
                    holder=news.about,
                    found_by=consumer.hostname,
                )
            else:
                self._say(consumer, news)
        for holder, count in recovered.items():
            logger.warning(
                "%d message(s) of %s, which is silent, went back to their queues",
                count,
                holder,
                extra={"holder": holder, "count": count},
            )

    def _say(self, consumer: Any, news: News) -> None:
        task_id = _task_id(news)
        about = {"task_id": task_id, "delivery_tag": news.tag}
        if news.of is NewsOf.LOST:
            self._lost(consumer, news, task_id)
        elif news.of is NewsOf.LATE:
            logger.warning(
                "task %s ended here after its lease was lost; it may have run twice", task_id, extra=about
            )
        elif news.of is NewsOf.HELD_AGAIN:
            logger.warning(
                "Redis had lost task %s, which is held here; it is leased anew", task_id, extra=about
            )
        elif news.of is NewsOf.WEDGED:
            logger.error(
                "this worker's main loop was blocked for %s; its leases were not renewed meanwhile",
                news.about,
            )
        else:
            self._failure(news)

    def _lost(self, consumer: Any, news: News, task_id: str) -> None:
        request: Any = next((each for each in list(OPEN) if each.message is news.message), None)
        hands = hands_on(consumer.pool)
        given = getattr(request, "_apply_result", None) is not None
        about_to_begin = given and hands is not None and hands.starts_for_sure  # In a child.
        if request is not None and not about_to_begin and dropped(consumer.holdings, request):
            logger.warning(
                "the lease of task %s was lost before it began: it is left to others",
                task_id,
                extra={"task_id": task_id, "delivery_tag": news.tag},
            )
        elif news.message is not None:
            twins_for(consumer.app).on_lost(news.message)

    def _failure(self, news: News) -> None:
        now = time.monotonic()
        if self._failed_at is None or now - self._failed_at >= _REPEAT_FAILURE_SECONDS:
            self._failed_at = now
            logger.warning("leases could not be kept up: %s", news.about)


def _task_id(news: News) -> str:
    return str((getattr(news.message, "headers", None) or {}).get("id", ""))
