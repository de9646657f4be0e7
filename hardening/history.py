"""Attempts: from an error, and in the header that carries them over retries, bounded in size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from .core.letter import Attempt
from .tracebacks import traceback_text

__all__ = [
    "MAX_HEADER_CHARS",
    "attempt_from",
    "attempt_number",
    "class_path",
    "decode_history",
    "encode_history",
]

MAX_HEADER_CHARS = 16_000
"""RabbitMQ limits all headers of a message to one frame, 131,072 bytes by default."""

MAX_ATTEMPTS = 50
MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 20_000
_CARRIED_MESSAGE_CHARS = 300
_CARRIED_TRACEBACK_CHARS = 1_500

Clean = Callable[[str], str]


def class_path(exc_class: type[BaseException]) -> str:
    """Dotted path of an exception class; builtins by their bare name."""
    if exc_class.__module__ == "builtins":
        return exc_class.__qualname__
    return f"{exc_class.__module__}.{exc_class.__qualname__}"


def attempt_from(
    exc: BaseException,
    *,
    number: int,
    worker: str,
    started_at: float | None,
    clean: Clean,
    verdict: str = "",
    rule: str = "",
) -> Attempt:
    """Describe an error as an attempt that failed now. Texts are cleaned of secrets, then cut."""
    try:
        message = str(exc)
    except Exception:  # A broken __str__ must not cost the letter.
        message = f"(the text of this {type(exc).__name__} cannot be read)"
    return Attempt(
        number=number,
        error_class=class_path(type(exc)),
        message=_cleaned(message, MAX_MESSAGE_CHARS, clean),
        traceback=_cleaned(_traceback(exc), MAX_TRACEBACK_CHARS, clean),
        verdict=verdict,
        rule=rule,
        worker=worker,
        started_at=None if started_at is None else datetime.fromtimestamp(started_at, UTC),
        failed_at=datetime.now(UTC),
    )


def attempt_number(retries: object) -> int:
    """The number of an attempt, from the message's retry count; 1 where that is no count."""
    if isinstance(retries, float) and retries.is_integer() and abs(retries) < 2**31:
        retries = int(retries)  # JSON of a producer that knows no integers.
    return retries + 1 if isinstance(retries, int) and retries >= 0 else 1


def encode_history(attempts: Sequence[Attempt]) -> str:
    """Attempts as the text of a header of at most MAX_HEADER_CHARS.

    What does not fit goes in this order: the oldest tracebacks, then the oldest attempts.
    """
    carried = [
        replace(
            attempt,
            message=_cut(attempt.message, _CARRIED_MESSAGE_CHARS),
            traceback=_cut(attempt.traceback, _CARRIED_TRACEBACK_CHARS),
        )
        for attempt in attempts[-MAX_ATTEMPTS:]
    ]
    text = _dump(carried)
    bare = 0
    while len(text) > MAX_HEADER_CHARS and bare < len(carried):
        carried[bare] = replace(carried[bare], traceback="")
        bare += 1
        text = _dump(carried)
    while len(text) > MAX_HEADER_CHARS and len(carried) > 1:
        carried.pop(0)
        text = _dump(carried)
    return text


def decode_history(text: object) -> list[Attempt]:
    """Attempts from a header; an empty list for anything that is none."""
    if not isinstance(text, str):
        return []
    try:
        return [
            Attempt(
                number=int(number),
                error_class=str(error),
                message=str(message),
                traceback=str(trace),
                worker=str(worker),
                started_at=_time(started),
                failed_at=_time(failed),
                verdict=str(judged[0]) if judged else "",
                rule=str(judged[1]) if len(judged) > 1 else "",
            )
            for number, error, message, trace, worker, started, failed, *judged in json.loads(text)
        ]
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return []


def _dump(attempts: Sequence[Attempt]) -> str:
    return json.dumps(
        [
            (
                a.number,
                a.error_class,
                a.message,
                a.traceback,
                a.worker,
                _stamp(a.started_at),
                _stamp(a.failed_at),
                a.verdict,
                a.rule,
            )
            for a in attempts
        ],
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _stamp(moment: datetime | None) -> float | None:
    return None if moment is None else round(moment.timestamp(), 3)


def _time(stamp: float | None) -> datetime | None:
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)


def _traceback(exc: BaseException) -> str:
    trace = exc.__traceback__
    if (
        trace is not None
        and trace.tb_next is not None
        and trace.tb_frame.f_code.co_filename.endswith("task.py")
    ):
        trace = trace.tb_next  # Our own frame around the body says nothing.
    try:
        return traceback_text(exc, trace)
    except Exception:  # As above: a broken exception must not cost the letter.
        return f"{class_path(type(exc))} (its traceback cannot be formatted)"


def _cleaned(text: str, limit: int, clean: Clean) -> str:
    # Cut twice: cleaning megabytes takes long, and a secret that the first cut halves is in neither end.
    return _cut(clean(_cut(text, limit * 8)), limit)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    kept = limit - 20
    head = kept // 4
    return f"{text[:head]}\n[... cut ...]\n{text[-(kept - head) :]}"
