"""HardenedConsumer: the worker's consumer, whose connections to Redis may come and go under running work."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from celery.utils.imports import symbol_by_name

from hardening.intake.consumer import IntakeConsumer
from hardening.twins.channel_loss import connection_lost, marks_kept_while_connecting
from hardening.twins.keeping import running_kept
from hardening.twins.watch import twins_for

from .children import watch_again
from .halfway import go_on_writing, keep_readings
from .holdings import Holdings
from .keeper import Keeper
from .terms import Lease

__all__ = ["HardenedConsumer", "hardened_consumer"]

logger = logging.getLogger("hardening")

_EVENT_SECONDS = 5.0


class HardenedConsumer(IntakeConsumer):
    """Mixed into a consumer class. On Redis nothing that the worker holds goes back when a connection breaks.

    Celery drops what has not started, and kombu gives back all that is unacknowledged, also what is
    running. Here both stay: the requests, their timers and rate limits, the pool's queue, and the leases.
    What is no task is kept: see `intake.consumer`.
    """

    lease: Lease
    holder: str
    leased = False
    _qos: Any = None

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.holdings = Holdings() if self.leased else None
        self.keeper = Keeper(self.holdings, self.lease) if self.leased else None
        super().__init__(*args, **kwargs)

    def connect(self: Any) -> Any:
        """The connection that takes tasks: it leases what it takes.

        It alone. On a green pool remote control has a connection of its own, which ends with an error of
        its own: were it the one that answers for the leases, the running work would go back then.
        """
        connected = super().connect()  # type: ignore[misc]
        if self.leased:
            connected.default_channel.lease_messages()
        return connected

    def connection_for_read(self: Any, heartbeat: Any = None) -> Any:
        """A connection whose channels can lease, and wait for a silent Redis no longer than they need."""
        if not self.leased:
            return super().connection_for_read(heartbeat)  # type: ignore[misc]
        from .transport import lease_connection  # Needs redis-py, which is there only with Redis.

        connection = self.app.connection_for_read(heartbeat=heartbeat)
        lease_connection(connection, self.holdings, self.lease, self.holder)
        self.keeper.excuse()
        try:
            return self.ensure_connected(connection)
        finally:
            self.keeper.back()

    def connection_for_write(self: Any, url: Any = None, heartbeat: Any = None) -> Any:
        """That of the worker's events, which the main loop sends: it waits for a silent Redis no longer."""
        connection = self.app.connection_for_write(url=url, heartbeat=heartbeat)
        if self.leased and connection.get_transport_cls().driver_type == "redis":
            given = connection.transport_options or {}
            connection.transport_options = {"socket_timeout": _EVENT_SECONDS, **given}
        return self.ensure_connected(connection)

    def on_connection_error_after_connected(self: Any, exc: Exception) -> None:
        """The connection broke. Closes it, and gives nothing back."""
        if not self.leased:
            connection_lost(self)
            super().on_connection_error_after_connected(exc)  # type: ignore[misc]
            return
        self.holdings.reconnecting = True
        try:
            with warnings.catch_warnings():
                # Celery says that what runs cannot be acknowledged any more. Here it can.
                warnings.simplefilter("ignore", PendingDeprecationWarning)
                super().on_connection_error_after_connected(exc)  # type: ignore[misc]
        finally:
            self.holdings.reconnecting = False
        # What is running still counts against the prefetch limit by itself.
        self.initial_prefetch_count = self.max_prefetch_count
        self._maximum_prefetch_restored = True

    def ensure_connected(self: Any, conn: Any) -> Any:
        """Connect, however long that takes."""
        return super().ensure_connected(marks_kept_while_connecting(conn, self.app))  # type: ignore[misc]

    @property
    def qos(self: Any) -> Any:
        """The prefetch count of this connection."""
        return self._qos

    @qos.setter
    def qos(self: Any, count: Any) -> None:
        """A connection begins. What waits in memory has its credit in the new count before that is used.

        On a green pool the steps that follow let greenlets run: what fell due there, and had no credit in
        this count yet, would take one back that nobody had given, until the next connection.
        """
        if count is not None and self.leased:
            for _ in range(self.waiting()):
                count.increment_eventually()
        self._qos = count

    @property
    def max_prefetch_count(self: Any) -> int:
        """The prefetch count of a whole pool, as at the start of the worker.

        Celery asks the pool how many processes it has, and on gevent its release 5.6 says how many greenlets
        run at the moment. A connection that came back while one ran would take two messages at a time from
        then on, and one that came back to an idle worker any number.
        """
        return _places(self.pool) * int(self.prefetch_multiplier)

    def _restore_prefetch_count_after_connection_restart(self: Any, p: Any, *args: Any) -> None:
        """Each acknowledgement gives one credit back that Celery took at the lost connection.

        Celery cuts the count at its maximum, and with it the credits that were lent: when those are taken
        back, the worker is left with too few until its next connection. Here they stay on top.

        On a green pool Celery would read the answer in the greenlet of the task, from the socket that the
        main loop reads, which is an error and can take the loop's frames away. Here the loop asks, as it does
        for every other change of the prefetch count.
        """
        with self.qos._mutex:
            if self._maximum_prefetch_restored or not self.app.conf.worker_enable_prefetch_count_reduction:
                return
            restored = min(self.max_prefetch_count, self._new_prefetch_count)
            self.qos.value = restored + self._lent_credits()
            self.initial_prefetch_count = restored
            self._maximum_prefetch_restored = restored == self.max_prefetch_count
        if self._maximum_prefetch_restored:
            logger.info("the prefetch count is back at its maximum of %d", restored)

    @property
    def _new_prefetch_count(self: Any) -> int:
        """What the next acknowledgement restores, without the credits that were lent. Celery asks it too."""
        own: int = self.qos.value - self._lent_credits()
        return max(own, 0) + int(self.prefetch_multiplier)

    def _lent_credits(self: Any) -> int:
        """The credits for messages that are held back, or wait for their time."""
        return int(twins_for(self.app).held.credits(self.qos) + self.waiting())

    def loop_args(self: Any) -> Any:
        """What Celery's loop gets. It asks just before the loop registers the children of the pool."""
        watch_again(self.pool)
        keep_readings(self.pool)
        return super().loop_args()  # type: ignore[misc]

    def register_with_event_loop(self: Any, hub: Any) -> None:
        """The loop of a new connection begins, and the pool has been registered with it."""
        go_on_writing(self.pool, hub)
        super().register_with_event_loop(hub)  # type: ignore[misc]

    def on_close(self: Any) -> None:
        """After a lost connection: nothing is dropped, for everything can still be acknowledged."""
        if not self.leased:
            with running_kept(self):
                super().on_close()  # type: ignore[misc]
            return
        from .transport import LeasedPoller

        for entry in _entries(self.timer):
            # Celery 5.6 leaves the timers of the old connection.
            if isinstance(getattr(entry.fun, "__self__", None), LeasedPoller):
                entry.cancel()

    def waiting(self: Any) -> int:
        """How many messages wait for their time in memory, each with a credit of its own."""
        return sum(_waits(entry.fun, self) for entry in _entries(self.timer))


def hardened_consumer(own: Any, *, lease: Lease, holder: str, leased: bool) -> Any:
    """A project's consumer class, or Celery's, with ours in front."""
    found = symbol_by_name(own)
    if issubclass(found, HardenedConsumer):
        return found
    return type(
        f"Hardened{found.__name__}",
        (HardenedConsumer, found),
        {"lease": lease, "holder": holder, "leased": leased},
    )


def _places(pool: Any) -> int:
    """How many tasks a pool can run at once."""
    greenlets = getattr(pool, "_pool", None) if getattr(pool, "is_green", False) else None
    size = getattr(greenlets, "size", None)
    return int(size or pool.num_processes)


def _entries(timer: Any) -> list[Any]:
    return [scheduled.entry for scheduled in list(timer.queue) if not scheduled.entry.canceled]


def _waits(function: Any, consumer: Any) -> bool:
    return function in (consumer.apply_eta_task, consumer._limit_post_eta)
