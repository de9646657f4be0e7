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
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery import Celery, states

from hardening.capture import Delivery

from .reading import Reading, accepted_by, read
from .shape import embedded_of

__all__ = ["end_request", "end_result"]

logger = logging.getLogger("hardening")

_FIELDS = (
    *("root_id", "parent_id", "group", "group_index", "replaced_task_nesting", "ignore_result"),
    *("stamped_headers", "stamps", "retries"),
)


def end_result(app: Celery, raw: Delivery, exc: BaseException, *, state: str = states.FAILURE) -> None:
    """Store the result of a message that is kept as a letter, and end what waits for it. Never raises."""
    try:
        reading = read(raw, accepted_by(app))
        if not reading.has_id:
            return
        task = app.tasks.get(reading.task_name)
        backend: Any = app.backend if task is None else task.backend
        request = _request_of(reading, raw)
        ignored = request.ignore_result
        if task is not None:
            ignored = task.ignore_result if ignored is None else ignored
            ignored = ignored and not task.store_errors_even_if_ignored
        _end(backend, request, exc, state=state, store_result=not ignored, is_decoded=reading.is_decoded)
    # The letter is kept: whoever cannot be told is not worth a second delivery.
    except Exception:
        logger.exception("the result of a message that is no task could not be stored")


def end_request(request: Any, exc: BaseException, *, state: str) -> None:
    """End what comes after a request whose own result and chord were told already. Never raises."""
    try:
        context = request._context
        backend = request.task.backend
        store = request.store_errors
    except Exception:
        logger.exception("what waits for task %s[%s] could not be told", request.name, request.id)
        return
    _tell_chain(backend, context, exc, state, store)
    _tell_errbacks(backend, context, exc)


def _request_of(reading: Reading, raw: Delivery) -> Any:
    from celery.app.task import Context

    known = {name: reading.request[name] for name in _FIELDS if reading.request.get(name) is not None}
    properties = raw.properties if isinstance(raw.properties, dict) else {}
    for name in ("reply_to", "correlation_id"):  # The RPC backend answers to these.
        if properties.get(name) is not None:
            known[name] = properties[name]
    known.setdefault("ignore_result", None)
    return Context(
        {**known, **embedded_of(reading.embed), "id": reading.task_id, "task": reading.task_name},
        args=reading.args,
        kwargs=reading.kwargs,
        called_directly=False,
        delivery_info={},
    )


def _end(
    backend: Any, request: Any, exc: BaseException, *, state: str, store_result: bool, is_decoded: bool
) -> None:
    if store_result:
        _told(request, lambda: backend.store_result(request.id, exc, state, request=request))
    if request.chord:
        _told(request, lambda: backend.on_chord_part_return(request, state, exc))
    elif request.group and not is_decoded:
        # Of a chord, perhaps. Without its signature only Redis counts a part, and raises at the last one.
        with suppress(Exception):
            backend.on_chord_part_return(request, state, exc)
    _tell_chain(backend, request, exc, state, store_result)
    _tell_errbacks(backend, request, exc)


def _tell_chain(backend: Any, request: Any, exc: BaseException, state: str, store_result: bool) -> None:
    from celery.app.task import Context

    if request.chain:
        # Celery's own way to the tail, for a request of which nothing else is to be told.
        rest = Context(id=request.id, chain=request.chain, root_id=request.root_id)
        _told(request, lambda: _fail_chain(backend, rest, exc, state, store_result))


def _fail_chain(backend: Any, rest: Any, exc: BaseException, state: str, store_result: bool) -> None:
    if not store_result:
        backend.mark_as_failure(rest.id, exc, request=rest, store_result=False, call_errbacks=False)
        return
    # It stores the result of the head once more: the same one.
    backend.mark_as_failure(rest.id, exc, request=rest, call_errbacks=False, state=state)


def _tell_errbacks(backend: Any, request: Any, exc: BaseException) -> None:
    if request.errbacks:
        _told(request, lambda: backend._call_task_errbacks(request, exc, None))


def _told(request: Any, tell: Callable[[], object]) -> None:
    try:
        tell()
    # Result backend, errback or broker: the letter is kept, and the others are to be told.
    except Exception:
        logger.exception(
            "message %s has its dead letter, but somebody who waits for it could not be told",
            request.id,
            extra={"task_id": request.id},
        )
