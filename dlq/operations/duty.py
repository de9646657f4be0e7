"""Gives operations their turns: a slice in each worker now and then, or a process of its own that does no
more.

A worker's parent must not be kept for long: its slice is short, it sleeps for nothing, and it opens a broker
connection only where something is to be sent. Whatever it leaves another turn finds, of any worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from random import sample
from uuid import UUID

from celery import Celery
from django.db import Error
from django.db.models import Exists, OuterRef, Q

from hardening.core.connection import (
    KeptConnection,
    drop_connection,
    own_connection,
)

from ..brief import unwaiting_connection
from ..conf import database_alias, dlq_settings
from ..groups.releases import replay_due
from ..models import Operation, OperationItem
from ..text import without_credentials
from .outcomes import settle
from .publishing import Publisher
from .runner import Patience, Runner, Turn
from .states import ItemState, OperationState

__all__ = ["SLICE_SECONDS", "has_something_to_send", "operate", "operations_duty", "runnable"]

SLICE_SECONDS = 0.2
_TURN_SECONDS = 1.0
_IDLE_SECONDS = 0.2
# Longer than what lies between two turns, or a rate is not reached.
_BANK_SECONDS = 0.5
_CONNECT_SECONDS = 3
_ANSWER_SECONDS = 3
_BROKER_SECONDS = 1.0
_CHUNK = 100
"""In a worker: its slice is looked at between two chunks."""
_MOST_AT_ONCE = 20
_MOST_LOOKED_AT = 1_000
_AFTER_FAILURE_SECONDS = 2.0
_RELEASES_EVERY_SECONDS = 5.0
_log = logging.getLogger(__name__)


def runnable() -> list[UUID]:
    """Operations that a runner has something to do for: bounded, oldest first.

    Of many some, at random: those whose ramp waits for hours keep nobody else from having a turn.
    """
    alias = database_alias()
    owed = OperationItem.objects.using(alias).filter(operation_id=OuterRef("pk"), state=ItemState.STAGED)
    live = Operation.objects.using(alias).filter(
        Q(state=OperationState.RUNNING)
        | Q(Exists(owed), state__in=(OperationState.PAUSED, OperationState.CANCELLED))
    )
    found = list(live.order_by("created_at").values_list("pk", flat=True)[:_MOST_LOOKED_AT])
    if len(found) <= _MOST_AT_ONCE:
        return found
    return [found[index] for index in sorted(sample(range(len(found)), _MOST_AT_ONCE))]


def has_something_to_send() -> bool:
    """Whether an operation runs, or owes something."""
    return bool(runnable())


def operations_duty(app: Celery) -> None:
    """The periodic form, for a worker's parent process: short, and leaves no connection open."""
    alias = database_alias()
    kept = KeptConnection(_CONNECT_SECONDS)
    try:
        with kept.in_place(alias), unwaiting_connection(alias, _ANSWER_SECONDS):
            if not _anything_live(alias):
                return
            _slice(app, dlq_settings().operate_every_seconds)
            settle(app=app, seconds=SLICE_SECONDS)
    # No fault of this worker: the database is down, or has not our tables yet.
    except Error as exc:
        text = without_credentials(f"{type(exc).__name__}: {exc}")
        _log.warning("operations have no turn in this worker now: %s", text)
    finally:
        kept.close()


def operate(
    app: Celery,
    *,
    until_idle: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    on_turn: Callable[[UUID, Turn], object] = lambda _pk, _turn: None,
) -> None:
    """Run operations until `stopped`, or with `until_idle` until none has anything to be sent.

    Several have turns of a second each. Any number of processes may do so. A database that is away is waited
    for, but with `until_idle`; and one operation that cannot be run does not keep the others.
    """
    alias = database_alias()
    releases_at = float("-inf")
    with own_connection(alias), Publisher(app) as publisher:
        while not stopped():
            try:
                if time.monotonic() - releases_at > _RELEASES_EVERY_SECONDS:
                    # Those that are too large for a worker's turn are left to us.
                    replay_due()
                    releases_at = time.monotonic()
                if _round(app, publisher, stopped, on_turn) and until_idle:
                    return
            except Error as exc:
                if until_idle:
                    raise
                text = without_credentials(f"{type(exc).__name__}: {exc}")
                _log.warning("operations wait for the database: %s", text)
                drop_connection(alias)
                time.sleep(_AFTER_FAILURE_SECONDS)


def _round(
    app: Celery,
    publisher: Publisher,
    stopped: Callable[[], bool],
    on_turn: Callable[[UUID, Turn], object],
) -> bool:
    """A turn for each; whether there was none to be had, and nothing was settled."""
    found = runnable()
    turns = []
    for pk in found:
        if stopped():
            return False
        patience = Patience(seconds=_TURN_SECONDS, wait=len(found) == 1)
        turn = _turn_of(pk, publisher, patience)
        turns.append(turn)
        on_turn(pk, turn)
    settled = settle(app=app, seconds=_TURN_SECONDS)
    if not any(turn in (Turn.TIME_OVER, Turn.ENDED) for turn in turns):
        time.sleep(_IDLE_SECONDS)
    return not found and not settled


def _turn_of(pk: UUID, publisher: Publisher, patience: Patience) -> Turn:
    try:
        return Runner(pk, publisher, patience).run()
    except Error:
        raise
    # What nobody foresaw of this one: it is as it was, and the next one has its turn.
    except Exception:
        _log.exception("operation %s cannot be run now", pk)
        publisher.close()
        return Turn.WAITING


def _slice(app: Celery, every_seconds: float) -> None:
    until = time.monotonic() + SLICE_SECONDS
    found = runnable()
    if not found:
        return
    with Publisher(app, answer_seconds=_BROKER_SECONDS) as publisher:
        for pk in found:
            left = until - time.monotonic()
            if left <= 0:
                return
            # One try of the broker a turn: operations pause by who has the time to wait for it.
            patience = Patience(
                seconds=left, wait=False, bank_seconds=every_seconds, broker_tries=1_000_000, chunk=_CHUNK
            )
            if _turn_of(pk, publisher, patience) is Turn.BROKER:
                return


def _anything_live(alias: str) -> bool:
    ended = (OperationState.CLOSED, OperationState.PLANNED, OperationState.AWAITING_APPROVAL)
    return Operation.objects.using(alias).exclude(state__in=ended).exists()
