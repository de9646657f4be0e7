"""HardenedConsumer: the worker's consumer, whose connections to Redis may come and go under running work."""

from __future__ import annotations

from typing import Any

from celery.utils.imports import symbol_by_name

from .holdings import Holdings
from .keeper import Keeper
from .terms import Lease
from .transport import _LeasedPoller, lease_connection

__all__ = ["HardenedConsumer", "hardened_consumer"]


class HardenedConsumer:
    """Mixed into a consumer class. On Redis nothing that the worker holds goes back when a connection breaks.

    Celery drops what has not started, and kombu gives back all that is unacknowledged, also what is
    running. Here both stay: the requests, their timers and rate limits, the pool's queue, and the leases.
    """

    lease: Lease
    holder: str
    leased = False

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.holdings = Holdings() if self.leased else None
        self.keeper = Keeper(self.holdings, self.lease) if self.leased else None
        super().__init__(*args, **kwargs)

    def connection_for_read(self: Any, heartbeat: Any = None) -> Any:
        """A connection that leases what it takes."""
        if not self.leased:
            return super().connection_for_read(heartbeat)  # type: ignore[misc]
        connection = self.app.connection_for_read(heartbeat=heartbeat)
        lease_connection(connection, self.holdings, self.lease, self.holder)
        self.keeper.excuse()
        try:
            return self.ensure_connected(connection)
        finally:
            self.keeper.back()

    def on_connection_error_after_connected(self: Any, exc: Exception) -> None:
        """The connection broke. Closes it, and gives nothing back."""
        if not self.leased:
            super().on_connection_error_after_connected(exc)  # type: ignore[misc]
            return
        self.holdings.reconnecting = True
        try:
            super().on_connection_error_after_connected(exc)  # type: ignore[misc]
        finally:
            self.holdings.reconnecting = False
        # What is running still counts against the prefetch limit by itself.
        self.initial_prefetch_count = self.max_prefetch_count
        self._maximum_prefetch_restored = True

    def on_close(self: Any) -> None:
        """After a lost connection: nothing is dropped, for everything can still be acknowledged."""
        if not self.leased:
            super().on_close()  # type: ignore[misc]
            return
        for entry in _entries(self.timer):
            # Celery 5.6 leaves the timers of the old connection.
            if isinstance(getattr(entry.fun, "__self__", None), _LeasedPoller):
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


def _entries(timer: Any) -> list[Any]:
    return [scheduled.entry for scheduled in list(timer.queue) if not scheduled.entry.canceled]


def _waits(function: Any, consumer: Any) -> bool:
    return function in (consumer.apply_eta_task, consumer._limit_post_eta) or getattr(
        function, "holds_credit", False
    )
