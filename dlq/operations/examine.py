"""The dry run: what would become of each letter of an operation, counted before anything moves.

Verdicts are written on the items. Some are said again, and obeyed, when the item's turn has come: a letter
that is claimed then, or was discarded, is left alone. The others warn: what another worker knows, or will
know when the message arrives there, is not for this process to decide.
"""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from celery import Celery
from django.db.models import Count
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from kombu.exceptions import KombuError

from hardening.core.apps import NoCeleryApp, celery_app, loaded_app
from hardening.core.broker import batching_connection
from hardening.core.letter import DeadLetter as LetterRecord

from ..conf import database_alias, dlq_settings
from ..errors import CannotUnseal
from ..models import DeadLetter, Operation, OperationItem
from ..states import State
from .records import record_of
from .states import ItemState, Kind

__all__ = [
    "BLOCKING",
    "LABELS",
    "Examination",
    "ItemVerdict",
    "examination_of",
    "examine",
    "json_arguments",
    "live_consumers",
    "signature_of",
    "standing_of",
]

_BATCH = 200
_REPLY_SECONDS = 1.0
_ANSWER_SECONDS = 5.0


class ItemVerdict(StrEnum):
    """Stored and counted: never rename one."""

    FITS = "fits"
    UNREGISTERED = "unregistered"
    ARGUMENTS = "arguments_do_not_bind"
    NO_CONSUMER = "no_consumer"
    EXPIRED = "expired"
    BODY_MISSING = "body_missing"
    CLAIMED = "claimed"
    TOO_OFTEN = "replayed_too_often"
    NOT_OPEN = "not_open"
    GONE = "gone"
    UNSENDABLE = "unsendable"
    CANCELLED = "cancelled"


BLOCKING = frozenset(
    {
        ItemVerdict.BODY_MISSING,
        ItemVerdict.CLAIMED,
        ItemVerdict.TOO_OFTEN,
        ItemVerdict.NOT_OPEN,
        ItemVerdict.GONE,
        ItemVerdict.UNSENDABLE,
        ItemVerdict.CANCELLED,
    }
)
"""What has one of these is not sent."""

LABELS: Mapping[str, str | Promise] = {
    ItemVerdict.FITS: _("fits"),
    ItemVerdict.UNREGISTERED: _("its task is not registered here"),
    ItemVerdict.ARGUMENTS: _("its arguments do not fit the task's signature"),
    ItemVerdict.NO_CONSUMER: _("no live worker reads its queue"),
    ItemVerdict.EXPIRED: _("it had expired; it is sent without an expiry"),
    ItemVerdict.BODY_MISSING: _("its message cannot be read"),
    ItemVerdict.CLAIMED: _("another replay has it"),
    ItemVerdict.TOO_OFTEN: _("it was replayed too often"),
    ItemVerdict.NOT_OPEN: _("it is not open any more"),
    ItemVerdict.GONE: _("it does not exist any more"),
    ItemVerdict.UNSENDABLE: _("it could not be sent"),
    ItemVerdict.CANCELLED: _("the operation was cancelled before its turn"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """How many items have which verdict. Not `complete`: call again to go on."""

    counts: Mapping[str, int]
    examined: int
    total: int
    complete: bool

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "counts": dict(self.counts),
            "examined": self.examined,
            "total": self.total,
            "complete": self.complete,
        }


def examine(
    operation_id: UUID, *, app: Celery | None = None, seconds: float | None = None, consumers: bool = True
) -> Examination:
    """Give the waiting items that have none a verdict, for at most about `seconds`, and count all verdicts.

    `consumers`: also ask which queues have live consumers, which takes about a second.
    """
    alias = database_alias()
    until = None if seconds is None else time.monotonic() + seconds
    operation = Operation.objects.using(alias).get(pk=operation_id)
    items = OperationItem.objects.using(alias).filter(operation_id=operation_id)
    unseen = items.filter(state=ItemState.WAITING, verdict="")
    judge: _Judge | None = None
    while until is None or time.monotonic() < until:
        batch = list(
            unseen.order_by("position").values_list("pk", "letter_id", "sealed", "sealed_with")[:_BATCH]
        )
        if not batch:
            break
        judge = judge or _Judge(operation, app=app, consumers=consumers)
        by_verdict: dict[ItemVerdict, list[int]] = {}
        letters = DeadLetter.objects.using(alias).in_bulk([row[1] for row in batch])
        for item_id, letter_id, sealed, sealed_with in batch:
            verdict = judge.verdict_on(letters.get(letter_id), sealed, sealed_with)
            by_verdict.setdefault(verdict, []).append(item_id)
        for verdict, ids in by_verdict.items():
            unseen.filter(pk__in=ids).update(verdict=verdict)
    counts = items.order_by().values_list("verdict").annotate(number=Count("*"))
    return examination_of(dict(counts.values_list("verdict", "number")), total=operation.total)


def examination_of(verdicts: Mapping[str, int], *, total: int) -> Examination:
    """From the number of items with each verdict, "" for none, as `progress` has it."""
    counts = Counter(verdicts)
    left = counts.pop("", 0)
    return Examination(counts=dict(counts), examined=counts.total(), total=total, complete=left == 0)


def standing_of(letter: DeadLetter | None, *, kind: Kind, over_limit: bool) -> ItemVerdict | None:
    """What keeps a letter from being sent by its state alone; None: nothing."""
    if letter is None:
        return ItemVerdict.GONE
    if kind is Kind.COPY:
        return None
    if letter.state == State.REPLAYING and not _is_stale(letter):
        return ItemVerdict.CLAIMED
    if letter.state not in (State.OPEN, State.REPLAYING):
        return ItemVerdict.NOT_OPEN
    if not over_limit and letter.replay_number >= dlq_settings().replay_limit:
        return ItemVerdict.TOO_OFTEN
    return None


def _is_stale(letter: DeadLetter) -> bool:
    before = timezone.now() - timedelta(seconds=dlq_settings().stale_claim_seconds)
    return letter.claimed_at is None or letter.claimed_at < before


class _Judge:
    def __init__(self, operation: Operation, *, app: Celery | None, consumers: bool) -> None:
        self._operation = operation
        self._kind = Kind(operation.kind)
        self._app = _loaded(app)
        self._live = live_consumers(self._app) if consumers and self._app is not None else None
        self._signatures: dict[str, inspect.Signature | None] = {}

    def verdict_on(self, letter: DeadLetter | None, sealed: Any, sealed_with: str) -> ItemVerdict:
        blocked = standing_of(
            letter, kind=self._kind, over_limit=bool(self._operation.source.get("over_limit"))
        )
        if blocked is not None or letter is None:
            return blocked or ItemVerdict.GONE
        try:
            record = record_of(sealed or letter.sealed, sealed_with or letter.sealed_with, letter.pk)
        except CannotUnseal:
            return ItemVerdict.BODY_MISSING
        if not record.payload.body:
            return ItemVerdict.BODY_MISSING
        return self._warning_of(record) or ItemVerdict.FITS

    def _warning_of(self, record: LetterRecord) -> ItemVerdict | None:
        if self._app is not None and record.task_name not in self._app.tasks:
            return ItemVerdict.UNREGISTERED
        if self._app is not None and not self._binds(record):
            return ItemVerdict.ARGUMENTS
        queue = self._operation.queue or record.queue
        if self._live is not None and queue and queue not in self._live:
            return ItemVerdict.NO_CONSUMER
        return ItemVerdict.EXPIRED if _expired(record.expires) else None

    def _binds(self, record: LetterRecord) -> bool:
        arguments = json_arguments(record)
        signature = self._signature(record.task_name)
        if arguments is None or signature is None:
            return True  # Nobody can tell.
        try:
            signature.bind(*arguments[0], **arguments[1])
        except TypeError:
            return False
        return True

    def _signature(self, name: str) -> inspect.Signature | None:
        if name not in self._signatures:
            assert self._app is not None
            self._signatures[name] = signature_of(self._app, name)
        return self._signatures[name]


def signature_of(app: Celery, name: str) -> inspect.Signature | None:
    """Of a registered task; None where Python cannot tell."""
    try:
        return inspect.signature(app.tasks[name].run)
    except (KeyError, TypeError, ValueError):
        return None


def json_arguments(record: LetterRecord) -> tuple[list[Any], dict[str, Any]] | None:
    """Of a body in JSON, of either protocol; None for another one."""
    if record.payload.content_type != "application/json":
        return None
    try:
        body = json.loads(record.payload.body)
    except (ValueError, RecursionError):
        return None
    if isinstance(body, dict):  # Protocol 1
        body = [body.get("args", []), body.get("kwargs", {})]
    if isinstance(body, list) and len(body) >= 2 and isinstance(body[0], list) and isinstance(body[1], dict):
        return body[0], body[1]
    return None


def _loaded(app: Celery | None) -> Celery | None:
    try:
        return loaded_app(app if app is not None else celery_app())
    except NoCeleryApp:
        return None


def live_consumers(app: Celery) -> frozenset[str] | None:
    """The queues that a live consumer reads; None where nobody can be asked.

    RabbitMQ tells it of each queue that the app knows; elsewhere the workers are asked, and one that is too
    busy to answer within a second is not heard.
    """
    try:
        with batching_connection(app, _ANSWER_SECONDS) as connection:
            if connection.transport.driver_type == "amqp":
                return _read_queues(connection, app.amqp.queues)
            replies = app.control.inspect(timeout=_REPLY_SECONDS, connection=connection).active_queues()
    except (KombuError, OSError):
        return None
    # Whatever else a broker or a worker answers: nothing is known then.
    except Exception:
        return None
    answers = (replies or {}).values()
    return frozenset(str(queue.get("name")) for queues in answers for queue in queues or ())


def _read_queues(connection: Any, queues: Sequence[str] | Mapping[str, Any]) -> frozenset[str]:
    found = set()
    for name in list(queues):
        with connection.channel() as channel:
            try:
                if channel.queue_declare(queue=str(name), passive=True).consumer_count:
                    found.add(str(name))
            except connection.channel_errors:
                continue
    return frozenset(found)


def _expired(expires: object) -> bool:
    if not expires:
        return False
    try:
        moment = datetime.fromisoformat(str(expires))
    except ValueError:
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) < datetime.now(UTC)
