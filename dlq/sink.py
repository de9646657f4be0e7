"""DatabaseSink: when `keep` returns, the letter is committed, once, however many processes hand it in.

The argument. Two unique constraints decide, nobody else: no number is given twice (delivery key, replay
number, body digest, occurrence), and of one digest one letter is live (live_digest, which the database
computes: the digest while the letter is live, NULL otherwise). A letter is first written as occurrence 1
without looking. If a constraint refuses it, we look: is a letter of the digest live, one UPDATE counts the
capture, provided that it is still live. Are all closed, the number after the greatest, n + 1, is written.
Whatever others do since we looked (capture the same, restore a discarded letter, purge closed ones so that a
number is free again), a letter that was live at our commit makes it fail, and we look again. So neither
restoring nor purging takes part in this argument: they need not know of the numbers.

A connection that breaks at commit leaves it open whether the letter is stored. It is handed in again:
stored once or not at all, it is stored once afterwards, perhaps with one capture too many.

Whether the database is down or refuses this one letter decides whether those behind it wait. No error
code tells: a packet that is too large breaks the connection as a dead server does, a full disk does not.
So the database is asked: if it takes a small letter, rolled back at once, then it is this letter's fault.

A database that is silent, as one behind a broken network, is down after some seconds: a worker's parent keeps
letters too, and does nothing else meanwhile. The letter goes on to the broker. Should the database have taken
it all the same, it is handed in again from there, as above.

A database that is locked is tried again for some seconds, with a sleep before each try. On SQLite nothing
else waits, whatever `timeout` the project has: a greenlet that waits for the file in SQLite's code stops all
others, perhaps the one that holds it (see `hardening.core.connection.brief_connection`).
"""

from __future__ import annotations

import time
from random import random
from uuid import uuid4

from django.db import (
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    transaction,
)
from django.db.models import F
from django.utils import timezone

from hardening.core.connection import drop_connection
from hardening.core.errors import SinkUnavailable
from hardening.core.letter import Attempt as AttemptRecord
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.letter import Payload
from hardening.core.parking import LetterRefused

from .brief import unwaiting_connection
from .conf import database_alias, dlq_settings
from .errors import CannotSeal
from .inserting import insert
from .locks import is_lock_conflict
from .models import Attempt, DeadLetter
from .operations.outcomes import came_back
from .rows import attempt_rows, body_digest, letter_row
from .states import CLOSED
from .text import without_credentials

__all__ = ["DatabaseSink"]

_MOST_BROKEN_CONNECTIONS = 2
_ANSWER_SECONDS = 10
_LOCK_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.02


class DatabaseSink:
    """Keeps dead letters in the database of DLQ["DATABASE"].

    Safe in prefork children, threads and greenlets: it holds no state but its alias. Commits on its
    own even when the caller is in an open or broken transaction, and waits for no server that is silent
    (see `hardening.core.connection`).
    """

    def __init__(self, *, database: str | None = None) -> None:
        """`database` overrules DLQ["DATABASE"]."""
        self._database = database

    def keep(self, letter: LetterRecord) -> None:
        """Store the letter durably before returning. Raises SinkUnavailable when it is not stored.

        LetterRefused, a kind of it, when the database takes letters, only not this one.
        """
        alias = self._alias()
        began = time.monotonic()
        broken = 0
        known = False
        while True:
            try:
                with unwaiting_connection(alias, _ANSWER_SECONDS):
                    if self._keep_known(letter, alias) if known else self._keep_new(letter, alias):
                        return
                failure: Exception | None = None
            except IntegrityError as exc:
                # The constraint spoke: there is such a letter already, or was a moment ago.
                known, failure = True, exc
            except (OperationalError, InterfaceError) as exc:
                failure = exc
                if not is_lock_conflict(exc):
                    broken += 1
                    drop_connection(alias)
            # Whatever else keeps it from being stored, those behind it must not wait for it.
            except Exception as exc:
                raise self._not_kept(letter, alias, exc) from exc
            waited = time.monotonic() - began
            if broken and waited >= _ANSWER_SECONDS:
                why = _why(letter, alias, failure, f"got no answer in {waited:.0f} s from")
                raise SinkUnavailable(why) from failure
            if broken >= _MOST_BROKEN_CONNECTIONS or waited > _LOCK_PATIENCE_SECONDS:
                raise self._not_kept(letter, alias, failure) from failure
            _pause()

    def close(self) -> None:
        """Close this thread's connection: for a parent process that will fork. Safe to call at any time."""
        drop_connection(self._alias())

    def _alias(self) -> str:
        return self._database or database_alias()

    def _keep_new(self, letter: LetterRecord, alias: str, *, occurrence: int = 1) -> bool:
        now = timezone.now()
        row = letter_row(letter, keys=dlq_settings().encryption_keys, now=now)
        row.occurrence = occurrence
        attempts = attempt_rows(letter.attempts, letter_id=row.pk)
        if row.replay_of_id is None:
            insert(row, attempts, alias=alias)
            return True
        with transaction.atomic(using=alias):
            insert(row, attempts, alias=alias)
            DeadLetter.objects.using(alias).filter(
                pk=row.replay_of_id, delivery_key=row.delivery_key, replay_number=row.replay_number - 1
            ).prove_replayed(now=now)
            came_back(row, alias=alias)
        return True

    def _keep_known(self, letter: LetterRecord, alias: str) -> bool:
        same = DeadLetter.objects.using(alias).filter(body_digest=body_digest(letter))
        # Outside the transaction: SQLite cannot turn a read into a write while others write.
        live_first = same.order_by(F("live_digest").desc(nulls_last=True), "-occurrence")
        newest = live_first.values_list("pk", "occurrence", "state").first()
        if newest is None or newest[2] in CLOSED:
            return self._keep_new(letter, alias, occurrence=newest[1] + 1 if newest else 1)
        with transaction.atomic(using=alias):
            if not same.filter(pk=newest[0]).capture_again(now=timezone.now()):
                return False
            Attempt.objects.using(alias).bulk_create(
                attempt_rows(letter.attempts, letter_id=newest[0]), ignore_conflicts=True
            )
        return True

    def _not_kept(self, letter: LetterRecord, alias: str, exc: Exception | None) -> SinkUnavailable:
        waited = exc is None or (isinstance(exc, OperationalError) and is_lock_conflict(exc))
        if waited or isinstance(exc, CannotSeal) or not self._takes_another(alias):
            return SinkUnavailable(_why(letter, alias, exc, "could not be stored in"))
        return LetterRefused(_why(letter, alias, exc, "is refused by"))

    def _takes_another(self, alias: str) -> bool:
        """Whether the database would store a small letter now. Leaves none."""
        now = timezone.now()
        name = f"probe-{uuid4()}"
        record = LetterRecord(
            delivery_key=name,
            replay_number=0,
            task_id=name,
            task_name=name,
            reason="probe",
            attempts=(AttemptRecord(number=1, error_class=name, message=name),),
            payload=Payload(body=b"[]", content_type=None, content_encoding=None),
            failed_at=now,
        )
        began = time.monotonic()
        while True:
            try:
                row = letter_row(record, keys=dlq_settings().encryption_keys, now=now)
                with unwaiting_connection(alias, _ANSWER_SECONDS), transaction.atomic(using=alias):
                    insert(row, attempt_rows(record.attempts, letter_id=row.pk), alias=alias)
                    transaction.set_rollback(True, using=alias)
                return True
            # Whatever it is, it is not the letter's fault.
            except Exception as exc:
                locked = isinstance(exc, OperationalError) and is_lock_conflict(exc)
                if not locked or time.monotonic() - began > _LOCK_PATIENCE_SECONDS:
                    drop_connection(alias)
                    return False
            _pause()


def _pause() -> None:
    time.sleep(random() * _PAUSE_SECONDS)


def _why(letter: LetterRecord, alias: str, exc: Exception | None, outcome: str) -> str:
    # The text of other errors may quote what was to be stored.
    tells = isinstance(exc, (CannotSeal, OperationalError, InterfaceError, ProgrammingError))
    what = f"{type(exc).__name__}: {without_credentials(str(exc).strip())}" if tells else type(exc).__name__
    return (
        f"the dead letter of task {letter.task_id} ({letter.task_name}) {outcome} "
        f"the database {alias!r}: {what}"
    )
