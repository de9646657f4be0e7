"""Who runs an operation: one at a time, by a lease on its row, and every write of the holder names it.

The argument. A lease is taken by one UPDATE that only hits a row whose lease is free or over, by the
database's time. It is trusted by nobody: each transaction of the holder begins with an UPDATE of the row
WHERE it still carries the holder's token. So a holder that was slow, and whose lease another has taken,
changes nothing any more; and since that UPDATE holds the row to the end of the transaction, nobody takes the
lease, or pauses the operation, in the midst of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q

from ..locks import patient
from ..models import Operation
from .clock import DatabaseClock

__all__ = ["Lease", "LeaseLost"]

_LONGEST_LEASES = 3


class LeaseLost(Exception):
    """The operation has another runner, or a state in which this must not be done. Nothing was changed."""


class Lease:
    """The lease of one runner on one operation."""

    def __init__(self, operation_id: UUID, *, seconds: float, alias: str, clock: DatabaseClock) -> None:
        self.operation_id = operation_id
        self.alias = alias
        self.token = uuid4()
        self._seconds = seconds
        self._clock = clock

    @patient
    def acquire(self) -> bool:
        """Whether it is ours now."""
        now = self._clock.now()
        # No lease is so long: the database had a wrong clock when it was taken. Its holder, if it lives all
        # the same, is fenced off.
        wrong = now + timedelta(seconds=_LONGEST_LEASES * self._seconds)
        free = (
            Q(runner__isnull=True)
            | Q(runner_until__isnull=True)
            | Q(runner_until__lt=now)
            | Q(runner_until__gt=wrong)
        )
        return bool(self._row(free).update(runner=self.token, runner_until=self._until(now)))

    @patient
    def renew(self, **changes: Any) -> None:
        """Hold on for longer. Raises LeaseLost."""
        now = self._clock.now()
        if not self._row(Q(runner=self.token)).update(runner_until=self._until(now), **changes):
            raise LeaseLost

    @patient
    def release(self) -> None:
        """Let the next one have it at once."""
        self._row(Q(runner=self.token)).update(runner=None, runner_until=None)

    @contextmanager
    def fenced(self, *where: Q, **changes: Any) -> Iterator[datetime]:
        """A transaction that only the holder makes, only where the operation is like `where`.

        Raises LeaseLost. Yields the time.
        """
        now = self._clock.now()
        with transaction.atomic(using=self.alias):
            held = self._row(Q(runner=self.token), *where)
            if not held.update(runner_until=self._until(now), **changes):
                raise LeaseLost
            yield now

    def _row(self, *where: Q) -> Any:
        return Operation.objects.using(self.alias).filter(*where, pk=self.operation_id)

    def _until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._seconds)
