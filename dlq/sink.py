"""DatabaseSink: when `keep` returns, the letter is committed, once, however many processes hand it in.

The argument. The unique constraint (delivery key, replay number, body digest, occurrence) decides,
nobody else. A letter is first written as occurrence 1 without looking. If the constraint refuses it,
one UPDATE counts the capture on the live letter of the same digest; a row that is locked by that
UPDATE cannot be closed before we commit. If no letter is live, all are closed for good (closed states
have no way out), and the next occurrence is written; of two processes that do so at once, one is
refused and starts over, finding the other's letter live. So at most one letter of a digest is live.

A connection that breaks at commit leaves it open whether the letter is stored. It is handed in again:
stored once or not at all, it is stored once afterwards, perhaps with one capture too many.
"""

from __future__ import annotations

import time
from random import random

from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    connections,
)
from django.utils import timezone

from hardening.core.errors import SinkUnavailable
from hardening.core.letter import DeadLetter as LetterRecord

from .conf import database_alias, dlq_settings
from .connection import committing, drop_connection
from .errors import CannotSeal
from .models import Attempt, DeadLetter
from .rows import attempt_rows, letter_row
from .text import without_credentials

__all__ = ["DatabaseSink"]

_MOST_TRIES = 12
_MOST_BROKEN_CONNECTIONS = 2
_LOCK_SIGNS = ("deadlock", "locked", "lock wait timeout", "could not serialize", "record has changed")


class DatabaseSink:
    """Keeps dead letters in the database of DLQ["DATABASE"].

    Safe in prefork children, threads and greenlets: it holds no state but its alias. Commits on its
    own even when the caller is in an open or broken transaction (see `dlq.connection`).
    """

    def __init__(self, *, database: str | None = None) -> None:
        """`database` overrules DLQ["DATABASE"]."""
        self._database = database

    def keep(self, letter: LetterRecord) -> None:
        """Store the letter durably before returning. Raises SinkUnavailable when it is not stored."""
        alias = self._alias()
        broken = 0
        looked = False
        for attempt in range(_MOST_TRIES):
            try:
                with committing(alias):
                    if looked:
                        self._keep_known(letter, alias)
                    else:
                        self._keep_new(letter, alias, occurrence=1)
                return
            except IntegrityError as exc:
                # The constraint spoke: there is such a letter already, or was a moment ago.
                looked, last_error = True, exc
            except (OperationalError, InterfaceError) as exc:
                last_error = exc
                if not _is_lock_conflict(exc):
                    broken += 1
                    drop_connection(alias)
                    if broken >= _MOST_BROKEN_CONNECTIONS:
                        break
            except (DatabaseError, CannotSeal) as exc:
                raise _unavailable(letter, alias, exc) from exc
            if attempt:
                time.sleep(random() * 0.02 * attempt)
        raise _unavailable(letter, alias, last_error) from last_error

    def close(self) -> None:
        """Close this thread's connection: for a parent process that will fork. Safe to call at any time."""
        drop_connection(self._alias())

    def is_reachable(self) -> bool:
        """Whether the database takes a connection now; cheap when one is open."""
        alias = self._alias()
        try:
            connections[alias].ensure_connection()
        except DatabaseError:
            return False
        return connections[alias].is_usable()

    def _alias(self) -> str:
        return self._database or database_alias()

    def _keep_new(self, letter: LetterRecord, alias: str, *, occurrence: int) -> None:
        now = timezone.now()
        row = letter_row(letter, keys=dlq_settings().encryption_keys, now=now)
        row.occurrence = occurrence
        row.save(using=alias, force_insert=True)
        Attempt.objects.using(alias).bulk_create(attempt_rows(letter.attempts, letter_id=row.pk))
        if row.replay_of_id is not None:
            DeadLetter.objects.using(alias).filter(
                pk=row.replay_of_id, delivery_key=row.delivery_key, replay_number=row.replay_number - 1
            ).prove_replayed(now=now)

    def _keep_known(self, letter: LetterRecord, alias: str) -> None:
        now = timezone.now()
        row = letter_row(letter, keys=dlq_settings().encryption_keys, now=now)
        same = DeadLetter.objects.using(alias).filter(body_digest=row.body_digest)
        # The UPDATE comes first: it locks what it finds, and SQLite cannot turn a read into a write.
        if not same.capture_again(now=now):
            newest = same.order_by("-occurrence").values_list("occurrence", flat=True).first()
            self._keep_new(letter, alias, occurrence=(newest or 0) + 1)
            return
        letter_id = same.live().values_list("pk", flat=True).get()
        Attempt.objects.using(alias).bulk_create(
            attempt_rows(letter.attempts, letter_id=letter_id), ignore_conflicts=True
        )


def _is_lock_conflict(exc: Exception) -> bool:
    text = str(exc).lower()
    return any(sign in text for sign in _LOCK_SIGNS)


def _unavailable(letter: LetterRecord, alias: str, exc: Exception) -> SinkUnavailable:
    # The text of other database errors may quote what was to be stored.
    tells = isinstance(exc, (CannotSeal, OperationalError, InterfaceError, ProgrammingError))
    what = f"{type(exc).__name__}: {without_credentials(str(exc).strip())}" if tells else type(exc).__name__
    return SinkUnavailable(
        f"the dead letter of task {letter.task_id} ({letter.task_name}) could not be stored "
        f"in the database {alias!r}: {what}"
    )
