"""Letters of a cause: whole ones, as a capture would have left them. Each can be opened and sent again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from hardening.core.letter import Attempt as AttemptRecord
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.letter import Payload, dump_letter

from ..groups.tally import LetterFacts
from ..models import DeadLetter
from ..rows import body_digest, letter_row, task_id_of_replay
from ..sealing import seal
from ..states import CLOSED, State
from .population import Cause

__all__ = ["MARK", "WHO", "Specimen", "Template", "specimen", "template_of"]

MARK = "made-up:"
"""How the delivery keys of such letters begin: no other ones do."""

WHO = "dlq_make_letters"
_STATES = (State.OPEN, State.REPLAYED, State.DISCARDED, State.REPLAYING)
_SHARES = (70, 20, 9, 1)
_WORKERS = tuple(f"celery@made-up-{number:02}" for number in range(1, 25))
_DAYS_OF_A_RELEASE = 5
_FRAMES = (
    (
        "/srv/app/.venv/lib/python3.12/site-packages/celery/app/trace.py",
        453,
        "trace_task",
        "R = retval = fun(*args)",
    ),
    ("/srv/app/{module}", 41, "run", "return handle(item_id, options)"),
    ("/srv/app/{module}", 88, "handle", "result = step(item, **options)"),
    ("/srv/app/{module}", 117, "{function}", "raise_for(item, strict=True, reason=options['reason'])"),
)
_LIBRARY_FRAMES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What all letters of a cause have in common."""

    cause: Cause
    record: LetterRecord
    row: DeadLetter
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """One letter: what its rows have that differs from the template's, and what is counted of it."""

    letter: Mapping[str, Any]
    attempts: list[dict[str, Any]]
    facts: LetterFacts


def template_of(cause: Cause, *, now: datetime) -> Template:
    """Made once for each cause. Raises CannotSeal."""
    traceback = _traceback(cause)
    record = LetterRecord(
        delivery_key=MARK,
        replay_number=0,
        task_id="",
        root_id="",
        task_name=cause.task_name,
        reason=cause.reason,
        attempts=(
            AttemptRecord(
                number=cause.tries,
                error_class=cause.error_class,
                message=cause.message.format(n=0),
                traceback=traceback.format(n=0),
                verdict=cause.verdict,
                rule=cause.rule,
            ),
        ),
        payload=Payload(body=b"", content_type="application/json", content_encoding="utf-8"),
        failed_at=now,
        routing_key=cause.queue,
        queue=cause.queue,
        priority=0,
        argument_names=("item_id", "options"),
        versions={"celery": "5.7.0", "kombu": "5.7.0", "python": "3.12.1"},
    )
    return Template(
        cause=cause,
        record=replace(record, attempts=()),
        row=letter_row(record, keys=(), now=now),
        traceback=traceback,
    )


def specimen(
    template: Template, *, at: datetime, random: Random, keys: tuple[str, ...], newest: datetime
) -> Specimen:
    """A letter of the cause that failed `at` that time. Raises CannotSeal."""
    cause = template.cause
    number = random.randrange(10_000, 9_999_999)
    task_id = str(_uuid(random))
    key = f"{MARK}{task_id}"
    worker = random.choice(_WORKERS)
    release = f"made-up-{int((at.timestamp()) // (_DAYS_OF_A_RELEASE * 86_400))}"
    record = replace(
        template.record,
        delivery_key=key,
        task_id=task_id,
        root_id=task_id,
        failed_at=at,
        worker=worker,
        release=release,
        payload=_payload(cause, task_id, number),
    )
    message = cause.message.format(n=number)
    letter_id = _uuid(random)
    digest = body_digest(record)
    sealed = seal(dump_letter(record), keys)
    attempts = [
        {
            "letter_id": letter_id,
            "number": each,
            "error_class": cause.error_class,
            "message": message,
            # Of the last one a capture always has it; of those before as long as the headers have room.
            "traceback": template.traceback.format(n=number),
            "verdict": cause.verdict,
            "rule": cause.rule,
            "worker": worker,
            "started_at": at - timedelta(seconds=30 * (cause.tries - each) + 1),
            "failed_at": at - timedelta(seconds=30 * (cause.tries - each)),
        }
        for each in range(1, cause.tries + 1)
    ]
    letter = {
        "id": letter_id,
        "delivery_key": key,
        "body_digest": digest,
        "task_id": task_id,
        "root_id": task_id,
        "error_message": message,
        "worker": worker,
        "release": release,
        "group_id": template.row.fingerprint,
        "first_seen_at": attempts[0]["started_at"],
        "failed_at": at,
        "stored_at": at,
        "last_captured_at": at,
        "sealed": sealed.data,
        "sealed_with": sealed.method,
        "replay_task_id": task_id_of_replay(record, digest),
        **_standing(at, random, newest),
    }
    facts = LetterFacts(
        letter_id,
        template.row.fingerprint,
        at,
        cause.reason,
        cause.task_name,
        cause.error_class,
        cause.queue,
        release,
        worker,
    )
    return Specimen(letter=letter, attempts=attempts, facts=facts)


def _payload(cause: Cause, task_id: str, number: int) -> Payload:
    arguments = [number, {"reason": "nightly", "strict": True, "note": f"item {number} of {cause.queue}"}]
    embedded = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    return Payload(
        body=json.dumps([arguments, {}, embedded]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers={
            **dict.fromkeys(("parent_id", "eta", "expires", "group")),
            "lang": "py",
            "task": cause.task_name,
            "id": task_id,
            "root_id": task_id,
            "retries": cause.tries - 1,
            "timelimit": [None, None],
            "argsrepr": repr(arguments),
            "kwargsrepr": "{}",
            "origin": "gen1@made-up",
        },
        properties={"correlation_id": task_id, "delivery_mode": 2, "priority": 0},
    )


def _standing(at: datetime, random: Random, newest: datetime) -> dict[str, Any]:
    """The state, and what goes with it. Nothing happens after `newest`."""
    (state,) = random.choices(_STATES, _SHARES)
    if state is State.OPEN:
        return {"state": state.value}
    later = min(newest, at + timedelta(seconds=random.uniform(60, 86_400)))
    found: dict[str, Any] = {"state": state.value, "claim_token": _uuid(random)}
    if state is not State.DISCARDED:
        found |= {"claimed_at": later, "claimed_by": WHO}
    if state in CLOSED:
        found |= {"closed_at": later, "closed_by": WHO}
        found |= {"replayed_at": later} if state is State.REPLAYED else {"discard_reason": "made up"}
    return found


def _traceback(cause: Cause) -> str:
    lines = ["Traceback (most recent call last):"]
    library = [
        (
            f"/usr/lib/python3.12/site-packages/kit/layer_{name}.py",
            60 + at,
            "call",
            f"return self.{name}(context)",
        )
        for at, name in enumerate(("outer", "timer", "cache", "guard", "audit", "inner")[:_LIBRARY_FRAMES])
    ]
    for path, line, function, source in (*_FRAMES[:1], *library, *_FRAMES[1:]):
        path = path.format(module=cause.module)
        function = function.format(function=cause.function)
        lines += [f'  File "{path}", line {line}, in {function}', f"    {source}"]
    lines.append(f"{cause.error_class}: {cause.message}")
    return "\n".join(lines).replace("{", "{{").replace("}", "}}").replace("{{n}}", "{n}")


def _uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
