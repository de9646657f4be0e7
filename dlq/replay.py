"""Sends dead letters again, now, and says what became of each: an operation that its maker runs itself.

What is promised is promised by `dlq.operations`: each letter is sent at most once in effect and none is lost,
wherever the process dies; who goes on then is whoever runs operations next, a worker or `dlq_operate`, or the
next replay of the same letters once the claim is stale.

Neither the result backend nor a route takes part.

A repaired message is sent in the same way, under the same identity: with two repairs of one letter, after the
process died before it marked the first, the second one is the same task as the first, and does not run beside
it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from celery import Celery
from django.utils import timezone

from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.connection import own_connection

from .conf import database_alias, dlq_settings
from .errors import CannotUnseal, NotRepaired
from .lookup import MISSING, letters_of, states_of, unique_ids
from .message import Repair, repaired
from .models import DeadLetter, Operation, OperationItem
from .operations.cancelled import end_waiting
from .operations.control import cancel, start
from .operations.examine import ItemVerdict
from .operations.making import make_operation, refuse_unknown_queue
from .operations.pace import Unlimited
from .operations.publishing import Publisher, error_text
from .operations.records import sealed_record
from .operations.runner import Patience, Runner, Turn
from .operations.states import ItemState, OperationState
from .sealing import Sealed
from .states import State

__all__ = ["ReplayOutcome", "replay"]

_CHUNK = 500
_OTHERS_SECONDS = 30.0
_PAUSE_SECONDS = 0.05
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """What became of each letter.

    `sent`: the broker has its message (with `dry_run`: would be sent). `skipped`: how many were left
    alone, by their state, "missing" for ids without a letter, "replayed_too_often" at DLQ["REPLAY_LIMIT"].
    `failed`: back to open, with the error. `operation`: its record, where anything was to be done.
    """

    sent: tuple[UUID, ...] = ()
    skipped: Mapping[str, int]
    failed: Mapping[UUID, str]
    dry_run: bool = False
    operation: UUID | None = None

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "sent": [str(pk) for pk in self.sent],
            "skipped": dict(self.skipped),
            "failed": {str(pk): error for pk, error in self.failed.items()},
            "dry_run": self.dry_run,
            "operation": None if self.operation is None else str(self.operation),
        }


def replay(
    letter_ids: Iterable[UUID | str],
    *,
    by: str,
    queue: str | None = None,
    force_queue: bool = False,
    dry_run: bool = False,
    repair: Repair | None = None,
    over_limit: bool = False,
    why: str = "",
    app: Celery | None = None,
) -> ReplayOutcome:
    """Send these letters again, to `queue` or to where each came from; with `repair`, one letter, repaired.

    `by` says who asked, for the record. Only open letters and those whose replay died are sent, and with
    `over_limit` also those that were replayed as often as DLQ["REPLAY_LIMIT"] allows. One letter's failure
    does not stop the others; an unreachable broker does, and the rest stays open.

    Raises UnknownQueue for a `queue` that the app does not know, unless `force_queue`: Redis takes
    messages for any name, also for one that no worker reads. Raises ValueError for several letters with one
    `repair`.
    """
    try:
        app = app if app is not None else celery_app()
    except NoCeleryApp as exc:
        nobody = str(exc)  # Nothing can be sent: each letter will say so.
    else:
        nobody = ""
        if queue and not force_queue:
            refuse_unknown_queue(queue, app)
    ids = list(unique_ids(letter_ids))
    if repair is not None and len(ids) != 1:
        raise ValueError(f"a repaired message is that of one letter, not of {len(ids)}")
    # Each step commits by itself: inside a caller's transaction a rollback would reopen what was sent.
    with own_connection(database_alias()):
        if dry_run:
            return _dry_run(ids, over_limit=over_limit)
        if repair is None:
            edited: dict[UUID, Sealed] = {}
        else:
            found = _edited(ids[0], repair)
            if isinstance(found, str):
                return ReplayOutcome(skipped={}, failed={ids[0]: found})
            edited = found
        outcome = _replay(
            ids, by=by, queue=queue, edited=edited, over_limit=over_limit, why=why, app=app, error=nobody
        )
    if repair is not None and outcome.sent:
        _log.info("dead letter %s was sent repaired, by %s", ids[0], by, extra={"letter": str(ids[0])})
    return outcome


def _replay(
    ids: list[UUID],
    *,
    by: str,
    queue: str | None,
    edited: Mapping[UUID, Sealed],
    over_limit: bool,
    why: str,
    app: Celery | None,
    error: str,
) -> ReplayOutcome:
    operation = make_operation(
        letters=ids,
        by=by,
        source={"kind": "edit" if edited else "selection", "inline": True},
        why=why,
        queue=queue,
        force_queue=True,
        pace=Unlimited(),
        pause_above_percent=100,
        pause_on_same_cause=False,
        over_limit=over_limit,
        edited=edited,
        app=app,
    )
    # Whoever made it decided: it asks for nobody's approval, as it did before there were operations.
    start(operation.pk, by=by, approved=True)
    if app is not None:
        with Publisher(app) as publisher:
            _run(operation.pk, publisher)
        error = _why_it_paused(operation.pk)
    if error:
        # Its maker is told at once, and asks again when the broker is back.
        cancel(operation.pk, by=by)
        end_waiting(operation.pk, alias=database_alias())
    return _outcome(operation, ids, error)


def _run(operation_id: UUID, publisher: Publisher) -> None:
    # A worker may have taken it up as soon as it was started: what became of it is known when that is done.
    until = time.monotonic() + _OTHERS_SECONDS
    while Runner(operation_id, publisher, Patience(broker_tries=1)).run() is Turn.HELD:
        if time.monotonic() > until:
            return
        time.sleep(_PAUSE_SECONDS)


def _outcome(operation: Operation, ids: list[UUID], error: str) -> ReplayOutcome:
    alias = database_alias()
    items = OperationItem.objects.using(alias).filter(operation_id=operation.pk).order_by("position")
    sent: list[UUID] = []
    failed: dict[UUID, str] = {}
    left: list[UUID] = []
    skipped: Counter[str] = Counter()
    known = set()
    for letter_id, state, verdict, text in items.values_list("letter_id", "state", "verdict", "error"):
        known.add(letter_id)
        if state != ItemState.NOT_SENT:
            sent.append(letter_id)
        elif text or verdict == ItemVerdict.CANCELLED:
            failed[letter_id] = text or error
        elif verdict == ItemVerdict.TOO_OFTEN:
            skipped[verdict] += 1
        else:
            left.append(letter_id)
    skipped += states_of(left)
    missing = len(ids) - len(known)
    return ReplayOutcome(
        sent=tuple(sent),
        skipped=dict(skipped + Counter({MISSING: missing})),
        failed=failed,
        operation=operation.pk,
    )


def _why_it_paused(operation_id: UUID) -> str:
    row = Operation.objects.using(database_alias()).filter(pk=operation_id, state=OperationState.PAUSED)
    return row.values_list("pause_detail", flat=True).first() or ""


def _dry_run(ids: list[UUID], *, over_limit: bool) -> ReplayOutcome:
    would: list[UUID] = []
    skipped: Counter[str] = Counter()
    for chunk in _chunks(ids):
        fit = letters_of(chunk).replayable(stale_before=_stale_before())
        too_often = 0
        if not over_limit:
            limit = dlq_settings().replay_limit
            too_often = fit.filter(replay_number__gte=limit).count()
            fit = fit.filter(replay_number__lt=limit)
        here = list(fit.values_list("pk", flat=True))
        would += here
        skipped += states_of(set(chunk) - set(here)) - Counter({State.OPEN.value: too_often})
        skipped += Counter({ItemVerdict.TOO_OFTEN.value: too_often})
    return ReplayOutcome(sent=tuple(would), skipped=dict(skipped), failed={}, dry_run=True)


def _edited(letter_id: UUID, repair: Repair) -> dict[UUID, Sealed] | str:
    """The repaired message, sealed; or why there is none, which the letter says too."""
    letter: DeadLetter | None = letters_of([letter_id]).first()
    if letter is None:
        return {}
    try:
        return {letter.pk: sealed_record(repaired(letter.record(), repair))}
    except (CannotUnseal, NotRepaired) as exc:
        error = str(exc)
    except Exception as exc:
        error = error_text(exc)
    letters_of([letter_id]).open().update(replay_error=error)
    return error


def _stale_before() -> datetime:
    return timezone.now() - timedelta(seconds=dlq_settings().stale_claim_seconds)


def _chunks(ids: list[UUID]) -> Iterator[list[UUID]]:
    rest = iter(ids)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
