"""What a letter is in a file: one JSON object a line, or one row of CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from hardening.core.letter import Attempt as AttemptRecord
from hardening.core.letter import dump_letter

from ..errors import CannotUnseal
from ..models import Attempt, DeadLetter
from ..present import visible_payload

__all__ = ["COLUMNS", "VERSION", "Contents", "attempt_record", "columns_of", "described"]

VERSION = 1
"""Of a line; a reader refuses those that it does not know."""

COLUMNS = (
    *("id", "state", "reason", "task", "task_id", "delivery_key", "replay_number", "occurrence", "captures"),
    *("queue", "exchange", "routing_key", "priority", "error_class", "error_message", "verdict", "rule"),
    *("fingerprint", "worker", "release", "root_id", "parent_id", "first_seen_at", "failed_at", "stored_at"),
    *("replay_of", "replay_task_id", "replayed_at", "closed_at", "closed_by", "discard_reason"),
    "imported_from",
)
_ELSEWHERE = {"task": "task_name", "replay_of": "replay_of_id"}


class Contents(StrEnum):
    """How much of a message goes along."""

    NOTHING = "nothing"
    SHOWN = "shown"
    """Arguments and headers as they are shown: decoded, secrets hidden, cut."""
    WHOLE = "whole"
    """The message byte for byte, secrets included: only this can be imported."""


def columns_of(letter: DeadLetter) -> dict[str, Any]:
    """COLUMNS, with times as text."""
    found = {name: getattr(letter, _ELSEWHERE.get(name, name)) for name in COLUMNS}
    return {name: _plain(value) for name, value in found.items()}


def described(letter: DeadLetter, attempts: Sequence[Attempt], contents: Contents) -> dict[str, Any]:
    """A letter as it goes into a line. `payload_problem` says why its message is missing."""
    line: dict[str, Any] = {"v": VERSION, **columns_of(letter)}
    line["canvas"] = letter.canvas
    line["versions"] = letter.versions
    if contents is Contents.WHOLE:
        # With them as they are among the rest: once is enough.
        return {**line, **_whole(letter, attempts)}
    line["attempts"] = [
        {
            "number": each.number,
            "error_class": each.error_class,
            "message": each.message,
            "traceback": each.traceback,
            "verdict": each.verdict,
            "rule": each.rule,
            "worker": each.worker,
            "started_at": _plain(each.started_at),
            "failed_at": _plain(each.failed_at),
        }
        for each in attempts
    ]
    return {**line, **shown_payload(letter)} if contents is Contents.SHOWN else line


def shown_payload(letter: DeadLetter) -> dict[str, Any]:
    """Its arguments and headers as pages show them."""
    payload = visible_payload(letter)
    return {
        "arguments": {each.name: each.value for each in payload.arguments},
        "headers": {each.name: each.value for each in payload.headers},
        "payload_problem": payload.problem,
    }


def attempt_record(attempt: Attempt) -> AttemptRecord:
    """The attempt as it was captured."""
    return AttemptRecord(
        number=attempt.number,
        error_class=attempt.error_class,
        message=attempt.message,
        traceback=attempt.traceback,
        verdict=attempt.verdict,
        rule=attempt.rule,
        worker=attempt.worker,
        started_at=attempt.started_at,
        failed_at=attempt.failed_at,
    )


def _whole(letter: DeadLetter, attempts: Sequence[Attempt]) -> Mapping[str, Any]:
    try:
        record = letter.record()
    except CannotUnseal as exc:
        return {"payload_problem": str(exc)}
    complete = replace(record, attempts=tuple(map(attempt_record, attempts)))
    return {"letter": json.loads(dump_letter(complete))}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
