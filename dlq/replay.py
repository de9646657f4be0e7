"""Sends dead letters again: each at most once in effect, and none lost.

The argument. The row is the authority on whether a letter is sent; the broker is the authority on
whether the message exists. There is no transaction over both, so the order is: claim, publish, mark.

1. Claim. One UPDATE moves rows from open to replaying and writes our token; only rows that it moved
   are ours. Of two replays at once the second moves none of them. Nobody but the holder of the token
   marks or gives back these rows, unless the claim gets older than DLQ["STALE_CLAIM_SECONDS"].
2. Publish. The task id is a function of delivery key, replay number and body, not of this attempt, and
   the broker has confirmed the message when the call returns.
3. Mark. One UPDATE, for rows that still carry our token, from replaying to replayed.

If the process dies
- before 1: nothing happened.
- between 1 and 2: the rows say replaying and no message exists. After the claim went stale the next
  replay takes them over and sends them. Late, not lost.
- between 2 and 3, or while 2 waits for the confirmation: the rows say replaying and the message
  exists, or may. The next replay, after the claim went stale, sends the same task id with the same
  replay number: a hardened worker refuses the second start if the first succeeded or still runs. Should
  the first have failed, its letter has arrived with `replay_of` and has closed this one already.
- after 3: nothing is left to do.

If publishing fails, the row goes back to open with the error. The broker may have taken the message
even so (an answer was lost); sending it again is then the case "between 2 and 3".

When a chunk takes long, what was sent is marked and the claim on the rest renewed, so that a slow broker
does not make our own claim stale. Rows are claimed in small chunks: a dying process holds up few.

Neither the result backend nor a route takes part.

A repaired message is sent in the same way, under the same identity: with two repairs of one letter, after the
process died between 2 and 3, the second one is the same task as the first, and does not run beside it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID, uuid4

from celery import Celery
from django.utils import timezone
from kombu import Connection, Queue
from kombu.exceptions import KombuError

from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.broker import confirming_connection, publish_raw
from hardening.core.connection import own_connection

from .conf import database_alias, dlq_settings
from .errors import BrokerUnreachable, CannotUnseal, NoDestination, NotRepaired, UnknownQueue
from .lookup import letters_of, states_of, unique_ids
from .message import Destination, Repair, destination_of, headers_for_replay, properties_for_replay, repaired
from .models import NAME_LENGTH, DeadLetter
from .text import clip, without_credentials

__all__ = ["ReplayOutcome", "replay"]

_CHUNK = 50
_CONFIRM_SECONDS = 5.0
_RENEW_AT = 0.25
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """What became of each letter.

    `sent`: the broker has its message (with `dry_run`: would be sent). `skipped`: how many were left
    alone, by their state, "missing" for ids without a letter. `failed`: back to open, with the error.
    """

    sent: tuple[UUID, ...] = ()
    skipped: Mapping[str, int]
    failed: Mapping[UUID, str]
    dry_run: bool = False

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "sent": [str(pk) for pk in self.sent],
            "skipped": dict(self.skipped),
            "failed": {str(pk): error for pk, error in self.failed.items()},
            "dry_run": self.dry_run,
        }


def replay(
    letter_ids: Iterable[UUID | str],
    *,
    by: str,
    queue: str | None = None,
    force_queue: bool = False,
    dry_run: bool = False,
    repair: Repair | None = None,
    app: Celery | None = None,
) -> ReplayOutcome:
    """Send these letters again, to `queue` or to where each came from; with `repair`, one letter, repaired.

    `by` says who asked, for the record. Only open letters and those whose replay died are sent. One
    letter's failure does not stop the others; an unreachable broker does, and the rest stays open.

    Raises UnknownQueue for a `queue` that the app does not know, unless `force_queue`: Redis takes
    messages for any name, also for one that no worker reads. Raises ValueError for several letters with one
    `repair`.
    """
    if queue and not force_queue:
        _refuse_unknown(queue, app)
    ids = unique_ids(letter_ids)
    if repair is not None:
        ids = iter(_only(list(ids)))
    sent: list[UUID] = []
    failed: dict[UUID, str] = {}
    skipped: Counter[str] = Counter()
    # Each step commits by itself: inside a caller's transaction a rollback would reopen what was sent.
    with own_connection(database_alias()), ExitStack() as stack:
        publisher = _Publisher(app=app, queue=queue, repair=repair, stack=stack)
        while chunk := list(islice(ids, _CHUNK)):
            if dry_run:
                would = (
                    letters_of(chunk).replayable(stale_before=_stale_before()).values_list("pk", flat=True)
                )
                claimed = list(would)
                sent += claimed
            else:
                claimed = _replay_chunk(chunk, by=by, publisher=publisher, sent=sent, failed=failed)
            skipped += states_of(set(chunk) - set(claimed))
    if repair is not None and sent and not dry_run:
        _log.info("dead letter %s was sent repaired, by %s", sent[0], by, extra={"letter": str(sent[0])})
    return ReplayOutcome(sent=tuple(sent), skipped=dict(skipped), failed=failed, dry_run=dry_run)


class _Publisher:
    """One broker connection for a whole replay, opened at the first letter."""

    def __init__(
        self, *, app: Celery | None, queue: str | None, repair: Repair | None, stack: ExitStack
    ) -> None:
        self._app = app
        self._queue = queue
        self._repair = repair
        self._stack = stack
        self._connection: Connection | None = None
        self._unreachable: str | None = None

    def send(self, letter: DeadLetter) -> None:
        """Returns when the broker has the message. Raises BrokerUnreachable, or what else failed."""
        if self._unreachable is not None:
            raise BrokerUnreachable(self._unreachable)
        record = letter.record()
        if self._repair is not None:
            record = repaired(record, self._repair)
        app = self._app if self._app is not None else celery_app()
        destination = destination_of(record, queue=self._queue, is_fanout=lambda name: _is_fanout(app, name))
        try:
            if self._connection is None:
                self._connection = self._stack.enter_context(confirming_connection(app))
        except (KombuError, OSError) as exc:
            self._unreachable = _text_of(exc)
            raise BrokerUnreachable(self._unreachable) from exc
        connection = self._connection
        try:
            publish_raw(
                connection,
                body=record.payload.body,
                content_type=record.payload.content_type,
                content_encoding=record.payload.content_encoding,
                headers=headers_for_replay(record, letter_id=letter.pk, task_id=letter.replay_task_id),
                exchange=destination.exchange,
                routing_key=destination.routing_key,
                declare=_declared(app, destination),
                # Without it RabbitMQ confirms, and drops, a message that no queue takes.
                mandatory=True,
                confirm_timeout=_CONFIRM_SECONDS,
                **properties_for_replay(record, task_id=letter.replay_task_id),
            )
        except connection.connection_errors as exc:
            self._unreachable = _text_of(exc)
            raise BrokerUnreachable(self._unreachable) from exc


def _replay_chunk(
    chunk: Sequence[UUID], *, by: str, publisher: _Publisher, sent: list[UUID], failed: dict[UUID, str]
) -> list[UUID]:
    token = uuid4()
    now = timezone.now()
    letters_of(chunk).claim(by=clip(by, NAME_LENGTH), token=token, now=now, stale_before=_stale_before())
    claimed_at = time.monotonic()
    letters = list(letters_of(chunk).replaying().claimed_with(token).order_by("failed_at", "pk"))
    done: list[UUID] = []
    try:
        for letter in letters:
            if time.monotonic() - claimed_at > dlq_settings().stale_claim_seconds * _RENEW_AT:
                # What is sent is marked first: unmarked and not renewed, it would be sent again.
                sent += _mark(done, token)
                letters_of(chunk).renew_claim(token, now=timezone.now())
                claimed_at = time.monotonic()
                if not letters_of([letter.pk]).replaying().claimed_with(token).exists():
                    failed[letter.pk] = "another replay took this letter over"
                    continue
            error = _send(letter, publisher)
            if error is None:
                done.append(letter.pk)
            else:
                letters_of([letter.pk]).give_back(token, error=error)
                failed[letter.pk] = error
    finally:
        # Also when we are interrupted: what was sent is marked before we go.
        sent += _mark(done, token)
    return [letter.pk for letter in letters]


def _send(letter: DeadLetter, publisher: _Publisher) -> str | None:
    """None, or why the letter was not sent."""
    try:
        publisher.send(letter)
    except Exception as exc:  # Whatever it was, this letter is given back with its text; the others go on.
        error = _text_of(exc)
        fields = {"letter": str(letter.pk), "task_id": letter.task_id}
        _log.warning("dead letter %s was not sent again: %s", letter.pk, error, extra=fields)
        return error
    return None


def _mark(done: list[UUID], token: UUID) -> list[UUID]:
    """Mark as replayed what was sent, and hand it over: `done` is empty afterwards."""
    marked = list(done)
    if marked:
        letters_of(marked).finish_replay(token, now=timezone.now())
        done.clear()
    return marked


def _stale_before() -> datetime:
    return timezone.now() - timedelta(seconds=dlq_settings().stale_claim_seconds)


def _only(ids: list[UUID]) -> list[UUID]:
    if len(ids) != 1:
        raise ValueError(f"a repaired message is that of one letter, not of {len(ids)}")
    return ids


def _refuse_unknown(queue: str, app: Celery | None) -> None:
    try:
        queues = (app if app is not None else celery_app()).amqp.queues
    except NoCeleryApp:
        return  # Nothing can be sent: each letter will say so.
    if queue not in queues:
        raise UnknownQueue(
            f"the Celery app knows no queue {queue!r}, so perhaps no worker reads it; "
            f"it knows: {', '.join(sorted(map(str, queues)))}"
        )


def _declared(app: Celery, destination: Destination) -> tuple[Queue, ...]:
    name = destination.queue or destination.routing_key
    queues = app.amqp.queues
    return (queues[name],) if name in queues else ()


def _is_fanout(app: Celery, queue: str) -> bool:
    queues = app.amqp.queues
    return queue in queues and queues[queue].exchange is not None and queues[queue].exchange.type == "fanout"


def _text_of(exc: BaseException) -> str:
    if isinstance(exc, (BrokerUnreachable, CannotUnseal, NoDestination, NotRepaired)):
        return str(exc)
    return clip(without_credentials(f"{type(exc).__name__}: {exc}"), 2000)
