"""Turns a captured letter into rows. Any letter fits: texts are cleaned and cut, numbers clamped.

The types of a record are what we write; a letter holds what producers sent: an id that is a number, a
priority that is a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hmac import HMAC
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import salted_hmac

from hardening.core.identity import replay_task_id
from hardening.core.letter import Attempt as AttemptRecord
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.letter import dump_letter
from hardening.core.reasons import Reason

from .conf import dlq_settings
from .fingerprint import fingerprint_of
from .models import NAME_LENGTH, VERDICT_LENGTH, Attempt, DeadLetter
from .sealing import seal
from .text import clean, clip, fit_integer, whole_number
from .verdicts import UNKNOWN

__all__ = ["attempt_rows", "body_digest", "letter_row", "task_id_of_replay"]

_DIGEST_SALT = "dlq.rows.body_digest"
# What every database has room for, in every time zone.
_FIRST_YEAR, _LAST_YEAR = 1001, 9998


def body_digest(letter: LetterRecord) -> str:
    """Names delivery, replay and body exactly, also where a column cuts or ignores case.

    Keyed with SECRET_KEY: a short body cannot be guessed from it.
    """
    key = str(letter.delivery_key).encode("utf-8", "backslashreplace")
    message = b"%d:%s:%d:%s" % (
        len(key),
        key,
        whole_number(letter.replay_number) or 0,
        letter.payload.body,
    )
    digest = _keyed(settings.SECRET_KEY).copy()
    digest.update(message)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _keyed(secret: str | bytes) -> HMAC:
    return salted_hmac(_DIGEST_SALT, b"", secret=secret, algorithm="sha256")


def task_id_of_replay(letter: LetterRecord, digest: str | None = None) -> str:
    """The task id that a replay of this letter has. `digest`: its `body_digest`, where it is known.

    A message of protocol 1 carries its id in the body, which is never changed: it keeps its id.
    """
    if "task" not in letter.payload.headers:
        return str(letter.task_id)
    number = whole_number(letter.replay_number) or 0
    return replay_task_id(str(letter.delivery_key), number + 1, digest or body_digest(letter))


def letter_row(letter: LetterRecord, *, keys: tuple[str, ...], now: datetime) -> DeadLetter:
    """The unsaved row, as its first occurrence. Raises CannotSeal."""
    # Attempts have rows of their own; the rest is sealed whole, so that no column loses anything.
    sealed = seal(dump_letter(letter, attempts=False), keys)
    last = letter.attempts[-1] if letter.attempts else None
    failed_at = _moment(letter.failed_at) or now
    started = [moment for attempt in letter.attempts if (moment := _moment(attempt.started_at))]
    digest = body_digest(letter)
    return DeadLetter(
        delivery_key=clip(letter.delivery_key, NAME_LENGTH),
        replay_number=fit_integer(letter.replay_number),
        body_digest=digest,
        task_id=clip(letter.task_id, NAME_LENGTH),
        root_id=clip(letter.root_id, NAME_LENGTH),
        parent_id=clip(letter.parent_id, NAME_LENGTH),
        task_name=clip(letter.task_name, NAME_LENGTH),
        reason=clip(letter.reason, 64),
        error_class=clip(last.error_class, NAME_LENGTH) if last else "",
        error_message=clean(str(last.message)) if last else "",
        verdict=_verdict(letter.reason, last),
        rule=clip(last.rule, NAME_LENGTH) if last else "",
        queue=clip(letter.queue, NAME_LENGTH),
        exchange=clip(letter.exchange, NAME_LENGTH),
        routing_key=clip(letter.routing_key, NAME_LENGTH),
        priority=None if whole_number(letter.priority) is None else fit_integer(letter.priority),
        eta=clip(letter.eta, 64),
        expires=clip(letter.expires, 64),
        worker=clip(letter.worker, NAME_LENGTH),
        redelivered=bool(letter.redelivered),
        canvas={
            key: _names(value) if isinstance(value, (list, tuple)) else value and clean(str(value))
            for key in letter.canvas.__slots__
            for value in (getattr(letter.canvas, key),)
        },
        argument_names=_names(letter.argument_names),
        release=clip(letter.release, NAME_LENGTH),
        versions=_texts(letter.versions),
        fingerprint=_fingerprint(letter, last),
        first_seen_at=min(started, default=failed_at),
        failed_at=failed_at,
        stored_at=now,
        last_captured_at=now,
        sealed=sealed.data,
        sealed_with=sealed.method,
        replay_of_id=_uuid(letter.replay_of),
        replay_task_id=clip(task_id_of_replay(letter, digest), NAME_LENGTH),
    )


def attempt_rows(attempts: Iterable[AttemptRecord], *, letter_id: UUID) -> list[Attempt]:
    """Unsaved rows, one for each number. Of several runs with one number the last with a traceback stays."""
    chosen: dict[int, AttemptRecord] = {}
    for attempt in attempts:
        number = fit_integer(attempt.number)
        if number not in chosen or attempt.traceback or not chosen[number].traceback:
            chosen[number] = attempt
    return [
        Attempt(
            letter_id=letter_id,
            number=number,
            error_class=clip(attempt.error_class, NAME_LENGTH),
            message=clean(str(attempt.message)),
            traceback=clean(str(attempt.traceback)),
            verdict=clip(attempt.verdict, VERDICT_LENGTH),
            rule=clip(attempt.rule, NAME_LENGTH),
            worker=clip(attempt.worker, NAME_LENGTH),
            started_at=_moment(attempt.started_at),
            failed_at=_moment(attempt.failed_at),
        )
        for number, attempt in sorted(chosen.items())
    ]


def _fingerprint(letter: LetterRecord, last: AttemptRecord | None) -> str:
    return fingerprint_of(
        task_name=str(letter.task_name),
        reason=str(letter.reason),
        error_class=str(last.error_class) if last else "",
        message=str(last.message) if last else "",
        traceback=str(last.traceback) if last else "",
        packages=dlq_settings().project_packages,
    ).value


def _verdict(reason: object, last: AttemptRecord | None) -> str:
    # The reason says it too: whoever looks for errors without a rule asks one column.
    if str(reason) == Reason.UNCLASSIFIED:
        return UNKNOWN
    return clip(last.verdict, VERDICT_LENGTH) if last else ""


def _names(values: Iterable[object]) -> list[str]:
    return [clean(str(value)) for value in values]


def _texts(values: object) -> dict[str, str]:
    if not isinstance(values, Mapping):
        return {}
    return {clean(str(key)): clean(str(value)) for key, value in values.items()}


def _uuid(value: object) -> UUID | None:
    # The header that carries it comes from the broker: what is no id is no link.
    try:
        return UUID(str(value)) if value else None
    except ValueError:
        return None


def _moment(value: object) -> datetime | None:
    if not isinstance(value, datetime) or not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        return None
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)
