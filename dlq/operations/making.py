"""Makes operations: the set of letters is frozen when it is made, and nothing moves.

The argument. The operation, its items and its first event are written in one transaction: an operation that
can be seen has all its letters, and one whose making was cut off is not there. What an item needs to be sent
again by anybody (task id, replay number) is copied from the letter, where it never changes; so is the
fingerprint that a letter which comes back is compared with. A copy has an identity of its own, made of the
operation and the letter: its item gets it when it is staged, for no database makes it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from celery import Celery
from django.core.exceptions import FieldError, ValidationError
from django.db import connections, transaction
from django.db.models import (
    Case,
    CharField,
    Exists,
    F,
    IntegerField,
    Model,
    OuterRef,
    QuerySet,
    UUIDField,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

from hardening.core.apps import NoCeleryApp, celery_app

from ..conf import database_alias
from ..errors import UnknownQueue
from ..lookup import unique_ids
from ..models import NAME_LENGTH, DeadLetter, DeadLetterQuerySet, Operation, OperationEvent, OperationItem
from ..sealing import Sealed
from ..text import MOST_INTEGER, clean, clip
from .pace import Pace, pace_of
from .states import ItemState, Kind

__all__ = ["make_operation", "refuse_unknown_queue", "since"]

_BATCH = 500
_ASKED_COLUMNS = frozenset(
    name
    for field in DeadLetter._meta.concrete_fields
    for name in (field.name, field.attname)
    if field.name not in ("sealed", "canvas", "versions", "argument_names")
)
_ASKED_LOOKUPS = frozenset({"", "exact", "iexact", "gt", "gte", "lt", "lte", "in", "isnull"})


def make_operation(
    *,
    letters: DeadLetterQuerySet | Iterable[UUID | str],
    by: str,
    kind: Kind = Kind.REPLAY,
    source: Mapping[str, Any] | None = None,
    why: str = "",
    queue: str | None = None,
    force_queue: bool = False,
    pace: Pace | Mapping[str, Any] | None = None,
    pause_above_percent: int = 10,
    pause_on_same_cause: bool = True,
    limit: int | None = None,
    over_limit: bool = False,
    edited: Mapping[UUID, Sealed] | None = None,
    app: Celery | None = None,
) -> Operation:
    """A planned operation on these letters, oldest first, at most `limit` of them.

    `source` says what they were chosen by, for people and for `since`: {"kind": "selection"}, {"kind":
    "filter", "lookups": {...}}, {"kind": "group", "fingerprint": "..."}; "as_of" in it says of which moment
    the set is, as ISO 8601, where that was before now. `over_limit`: also what was replayed
    as often as DLQ["REPLAY_LIMIT"] allows. `edited`: messages that are sent instead of what was kept.

    Raises UnknownQueue for a `queue` that the app does not know, unless `force_queue`; ValueError for what is
    no pace, no percentage or no id.
    """
    if not 0 <= pause_above_percent <= 100:
        raise ValueError("a percentage is from 0 to 100")
    if queue and not force_queue:
        refuse_unknown_queue(queue, app)
    alias = database_alias()
    chosen = dict(source or {"kind": "selection"})
    if over_limit:
        chosen["over_limit"] = True
    now = timezone.now()
    operation = Operation(
        kind=Kind(kind).value,
        source=chosen,
        queue=clip(queue or "", NAME_LENGTH),
        pace=pace_of(pace).as_json(),
        pause_above_percent=pause_above_percent,
        pause_on_same_cause=pause_on_same_cause,
        why=clean(why),
        created_by=clip(by, NAME_LENGTH),
        created_at=now,
    )
    ids = None if isinstance(letters, QuerySet) else list(unique_ids(letters))[:limit]
    with transaction.atomic(using=alias):
        # By bulk_create, here and below: no receiver of a project's takes part.
        Operation.objects.using(alias).bulk_create([operation])
        if ids is not None:
            _freeze_ids(operation, ids, edited or {}, alias)
        else:
            _freeze_query(operation, cast("DeadLetterQuerySet", letters), limit, alias)
        items = OperationItem.objects.using(alias).filter(operation_id=operation.pk)
        operation.total = items.count()
        Operation.objects.using(alias).filter(pk=operation.pk).update(total=operation.total)
        OperationEvent.objects.using(alias).bulk_create(
            [
                OperationEvent(
                    operation_id=operation.pk,
                    at=now,
                    by=operation.created_by,
                    what="made",
                    detail={
                        "kind": operation.kind,
                        "letters": operation.total,
                        "source": chosen,
                        "pace": operation.pace,
                        "queue": operation.queue,
                        "why": operation.why,
                    },
                )
            ]
        )
    return operation


def since(operation: Operation, *, most: int = 10_000) -> int | None:
    """How many open letters of the same filter or group were stored since: they are not part of it.

    Counts up to `most`. None for a selection, which nothing new belongs to. "Since" is since the moment that
    the set is of: where its maker was asked first, what came while the question was on the screen counts.
    What came as it was made, and is in it, does not.
    """
    letters = letters_of_source(operation.source)
    if letters is None:
        return None
    mine = OperationItem.objects.using(letters.db).filter(operation_id=operation.pk, letter_id=OuterRef("pk"))
    newer = letters.open().filter(~Exists(mine), stored_at__gt=_set_of(operation)).order_by()
    return newer.values("pk")[:most].count()


def _set_of(operation: Operation) -> datetime:
    try:
        asked = parse_datetime(str(operation.source.get("as_of") or ""))
    except ValueError:
        asked = None
    if asked is None or timezone.is_naive(asked):
        return operation.created_at
    return min(asked, operation.created_at)


def letters_of_source(source: Mapping[str, Any]) -> DeadLetterQuerySet | None:
    """The letters that a filter or a group means now; None for other sources, and for what is no filter.

    Of a group those that were counted in it: fingerprints have no index. No lookup reaches what is sealed, or
    another table, whoever wrote the source.
    """
    match source.get("kind"):
        case "group" | "release":
            lookups: Any = {"fingerprint": source.get("fingerprint") or ""}
        case "filter":
            lookups = source.get("lookups")
        case _:
            return None
    if not isinstance(lookups, Mapping) or not all(map(_may_be_asked, lookups)):
        return None
    asked = {str(name): value for name, value in lookups.items() if name != "state"}
    if "fingerprint" in asked:
        asked["group_id"] = str(asked.pop("fingerprint"))
    every: DeadLetterQuerySet = DeadLetter.objects.using(database_alias()).all()
    try:
        return every.filter(**asked)
    except (FieldError, TypeError, ValidationError, ValueError):
        return None


def _may_be_asked(name: object) -> bool:
    column, _, lookup = str(name).partition("__")
    return column in _ASKED_COLUMNS and lookup in _ASKED_LOOKUPS


def refuse_unknown_queue(queue: str, app: Celery | None) -> None:
    """Raises UnknownQueue for a name that the app does not know: on Redis any name is a queue."""
    try:
        queues = (app if app is not None else celery_app()).amqp.queues
    except NoCeleryApp:
        return  # Nothing can be sent: each letter will say so.
    if queue not in queues:
        raise UnknownQueue(
            gettext(
                "the Celery app knows no queue '%(queue)s', so perhaps no worker reads it; "
                "it knows: %(known)s"
            )
            % {"queue": queue, "known": ", ".join(sorted(map(str, queues)))}
        )


def _freeze_ids(operation: Operation, ids: Sequence[UUID], edited: Mapping[UUID, Sealed], alias: str) -> None:
    """Where each stands is found first; then the rows are made by the database, a chunk at a time."""
    letters: DeadLetterQuerySet = DeadLetter.objects.using(alias).all()
    found: list[tuple[datetime, UUID]] = []
    for begin in range(0, len(ids), _BATCH):
        chunk = letters.filter(pk__in=ids[begin : begin + _BATCH])
        found += chunk.order_by().values_list("failed_at", "pk")
    found.sort()
    for begin in range(0, len(found), _BATCH):
        pks = [pk for _, pk in found[begin : begin + _BATCH]]
        _freeze_query(operation, letters.filter(pk__in=pks), None, alias, first=begin)
    items = OperationItem.objects.using(alias).filter(operation_id=operation.pk)
    for pk, message in edited.items():
        items.filter(letter_id=pk).update(sealed=message.data, sealed_with=message.method)


def _freeze_query(
    operation: Operation, letters: DeadLetterQuerySet, limit: int | None, alias: str, *, first: int = 0
) -> None:
    """INSERT ... SELECT: the set is what the database sees in this one statement. `first`: its position."""
    of_copies = operation.kind == Kind.COPY
    order = ("failed_at", "pk")
    chosen: Any = letters.using(alias).order_by()
    query = letters.query
    # An order of its own belongs to its slice; and what is joined may come twice.
    if query.is_sliced or query.distinct or query.combinator or len(query.alias_map) > 1:
        chosen = DeadLetter.objects.using(alias).filter(pk__in=letters.values("pk")).order_by()
    chosen = chosen.annotate(
        of_operation=Value(operation.pk, output_field=UUIDField()),
        at_position=Window(RowNumber(), order_by=order) + (first - 1),
        in_state=Value(ItemState.WAITING.value, output_field=CharField()),
        next_number=Value(0, output_field=IntegerField())
        if of_copies
        else Case(
            When(replay_number__gte=MOST_INTEGER, then=Value(MOST_INTEGER)),
            default=F("replay_number") + 1,
            output_field=IntegerField(),
        ),
        nothing=Value("", output_field=CharField()),
    ).values_list(
        "of_operation",
        "pk",
        "at_position",
        "in_state",
        "nothing" if of_copies else "replay_task_id",
        "next_number",
        "nothing" if of_copies else "delivery_key",
        "fingerprint",
        "nothing",
        "nothing",
        "nothing",
    )
    if limit is not None:
        chosen = chosen.order_by(*order)[:limit]
    columns = (
        *("operation", "letter", "position", "state", "task_id", "replay_number", "delivery_key"),
        *("fingerprint", "verdict", "error", "sealed_with"),
    )
    connection = connections[alias]
    quoted = ", ".join(connection.ops.quote_name(_column(OperationItem, name)) for name in columns)
    select, params = chosen.query.get_compiler(using=alias).as_sql()
    table = connection.ops.quote_name(OperationItem._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({quoted}) {select}", params)


def _column(model: type[Model], name: str) -> str:
    field: Any = model._meta.get_field(name)
    return str(field.column)
