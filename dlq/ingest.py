"""Takes letters that were parked on the broker into the database; none leaves before it is stored.

One that the database refuses is kept in a second queue on the broker, so that the others go on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from celery import Celery
from django.db import DatabaseError

from hardening.core.connection import KeptConnection
from hardening.core.errors import SinkUnavailable
from hardening.core.letter import Attempt, DeadLetter, Payload
from hardening.core.parking import Drained, LetterRefused, drain_letters, parking_queue, refused_queue
from hardening.core.reasons import Reason

from .conf import database_alias, dlq_settings
from .sink import DatabaseSink
from .text import without_credentials

__all__ = ["UNREADABLE", "ingest", "ingest_duty"]

UNREADABLE = "(unreadable)"
_CONNECT_SECONDS = 10
_log = logging.getLogger(__name__)


def ingest(app: Celery, *, limit: int, refused: bool = False) -> Drained:
    """Take in up to `limit` parked letters, oldest first; returns what became of them.

    With `refused` those that the database refused before; each has one turn.

    Raises what the store or the broker raised; everything not stored by then is still on the broker.
    An entry that is no letter is stored as a letter itself, with its bytes as the body.
    """
    with _one_connection():
        return _ingest(app, limit=limit, refused=refused)


def _ingest(app: Celery, *, limit: int, refused: bool) -> Drained:
    sink = DatabaseSink()

    def keep_unreadable(raw: bytes, exc: Exception) -> None:
        letter = _unreadable(raw, exc)
        sink.keep(letter)
        _log.error(
            "an entry of the dead-letter queue is no letter; kept as %s",
            letter.delivery_key,
            extra={"delivery_key": letter.delivery_key, "size_bytes": len(raw)},
        )

    def say_refused(raw: bytes, exc: LetterRefused) -> None:
        _log.error(
            "%s; its bytes are kept in the queue %s on the broker. Remove the cause, then try it again "
            "with: manage.py dlq_ingest --refused",
            exc,
            refused_queue(),
            extra={"queue": refused_queue(), "size_bytes": len(raw)},
        )

    return drain_letters(
        app,
        sink.keep,
        reject=keep_unreadable,
        limit=limit,
        queue=refused_queue() if refused else parking_queue(),
        refused=refused_queue(),
        on_refused=say_refused,
    )


def ingest_duty(app: Celery) -> None:
    """The periodic form, for a worker's parent process: leaves no database connection open."""
    try:
        taken = ingest(app, limit=max(1, dlq_settings().ingest_batch)).stored
    # No fault of this worker: the database is down, full or read-only, or does not answer.
    except SinkUnavailable as exc:
        _log.warning("parked letters stay on the broker: %s", exc)
        return
    finally:
        DatabaseSink().close()
    if taken:
        _log.info("took in %d parked dead letters", taken, extra={"letters": taken})


@contextmanager
def _one_connection() -> Iterator[None]:
    """For all letters of a turn. Raises SinkUnavailable when there is none.

    Opened first: with the database down a letter would be fetched and given back at every turn.
    """
    alias = database_alias()
    kept = KeptConnection(_CONNECT_SECONDS)
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(kept.in_place(alias))
            except DatabaseError as exc:
                why = f"{type(exc).__name__}: {without_credentials(str(exc).strip())}"
                raise SinkUnavailable(f"the database {alias!r} cannot be reached: {why}") from exc
            yield
    finally:
        kept.close()


def _unreadable(raw: bytes, exc: Exception) -> DeadLetter:
    now = datetime.now(UTC)
    # By content, so that taking the same entry in twice is one letter.
    queue = parking_queue()
    name = f"unreadable-{hashlib.sha256(raw).hexdigest()}"
    return DeadLetter(
        delivery_key=name,
        replay_number=0,
        task_id=name,
        task_name=UNREADABLE,
        reason=Reason.INTERNAL_ERROR,
        attempts=(
            Attempt(
                number=1,
                error_class=type(exc).__name__,
                message=f"an entry of the queue {queue} is not a dead letter in wire form",
                failed_at=now,
            ),
        ),
        payload=Payload(body=raw, content_type="application/octet-stream", content_encoding="binary"),
        failed_at=now,
        # No routing key: it has no queue to go back to, so that a replay must be told one.
        queue=queue,
    )
