"""end_result: who waits for a message that never became a task is told: callers, chains, chords, errbacks.

The canvas of a task travels in its body. Where that cannot be decoded, the id, the group and nothing else is
known: the result is stored and the part counted in the group's chord, on Redis, so that the chord fails as
soon as another of its members ends after this one, for that brings the chord's own signature. What cannot
be done: the tail of a chain, errbacks, and a chord whose last member to end is such a message, on Redis,
are written only in bytes that nobody can read. Backends that ask for a chord's parts by a task of their own
need no signature: there the chord ends as well.

Each piece is told by itself: one that cannot be told does not keep the others from it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery import Celery, states

from hardening.capture import Delivery
from hardening.telling.outcome import Outcome
from hardening.telling.teller import teller_for

from .reading import Reading, accepted_by, read
from .shape import embedded_of

__all__ = ["end_result"]

logger = logging.getLogger("hardening")

_NAMES = ("root_id", "parent_id", "group")
_NUMBERS = ("group_index", "replaced_task_nesting", "retries")
_LONGEST_ID = 255


def end_result(app: Celery, raw: Delivery, exc: BaseException, *, state: str = states.FAILURE) -> None:
    """Store the result of a message that is kept as a letter, and end what waits for it. Never raises.

    Told when this returns, or owed: see `telling`.
    """
    try:
        reading = read(raw, accepted_by(app))
        task_id = reading.task_id if reading.has_id else _id_in_properties(raw)
        if not task_id:
            return
        task = app.tasks.get(reading.task_name)
        request = _request_of(reading, raw, task_id)
        ignored = request.ignore_result
        if task is not None:
            ignored = task.ignore_result if ignored is None else ignored
            ignored = ignored and not task.store_errors_even_if_ignored
        outcome = Outcome(app, request, exc, state, task=task, stored=not ignored, decoded=reading.is_decoded)
        teller_for(app).tell(outcome.result().chord().rest())
    # The letter is kept: whoever cannot be told is not worth a second delivery.
    except Exception:
        logger.exception("the result of a message that is no task could not be stored")


def _id_in_properties(raw: Delivery) -> str:
    """The id of a task whose headers tell none: Celery gives it to the broker as well."""
    properties: object = raw.properties
    found = properties.get("correlation_id") if isinstance(properties, Mapping) else None
    return found[:_LONGEST_ID] if isinstance(found, str) else ""


def _request_of(reading: Reading, raw: Delivery, task_id: str) -> Any:
    from celery.app.task import Context

    known = _known(reading.request)
    properties = raw.properties if isinstance(raw.properties, dict) else {}
    for name in ("reply_to", "correlation_id"):  # The RPC backend answers to these.
        if properties.get(name) is not None:
            known[name] = properties[name]
    return Context(
        {**known, **embedded_of(reading.embed), "id": task_id, "task": reading.task_name},
        args=reading.args,
        kwargs=reading.kwargs,
        called_directly=False,
        delivery_info={},
    )


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields of a request those that a result backend reads, where each is of its own kind."""
    known: dict[str, Any] = {"ignore_result": None}
    known |= {name: fields[name] for name in _NAMES if isinstance(fields.get(name), str)}
    known |= {name: fields[name] for name in _NUMBERS if isinstance(fields.get(name), int)}
    if isinstance(fields.get("ignore_result"), bool):
        known["ignore_result"] = fields["ignore_result"]
    stamps, names = fields.get("stamps"), fields.get("stamped_headers")
    if isinstance(stamps, Mapping) and isinstance(names, (list, tuple)):
        known |= {
            "stamps": dict(stamps),
            "stamped_headers": [each for each in names if isinstance(each, str)],
        }
    return known
