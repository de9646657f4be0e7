"""What the commands about operations share: how one is printed, followed, and found."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from hardening.core.apps import celery_app

from ..cli import as_json
from ..conf import database_alias
from ..models import Operation
from .making import since
from .outcomes import settle
from .pace import pace_of
from .progress import Progress, progress
from .publishing import Publisher
from .runner import Patience, Runner
from .states import OperationState

__all__ = ["as_data", "follow", "operation_of", "percent", "told"]

_TURN_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_ENDED = (OperationState.CLOSED, OperationState.PAUSED, OperationState.AWAITING_APPROVAL)


def percent(text: str) -> int:
    """A whole number from 0 to 100, as the type of an option."""
    if not text.isdecimal() or int(text) > 100:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 to 100")
    return int(text)


def operation_of(text: str) -> Operation:
    """The operation of this id. Raises CommandError."""
    try:
        pk = UUID(text)
    except ValueError as exc:
        raise CommandError(f"{text!r} is not the id of an operation; dlq_operations list shows them") from exc
    found = Operation.objects.using(database_alias()).filter(pk=pk).first()
    if found is None:
        raise CommandError(f"there is no operation {pk}")
    return found


def as_data(operation: Operation, how_far: Progress) -> dict[str, Any]:
    """An operation for --json."""
    return {
        "operation": str(operation.pk),
        "kind": operation.kind,
        "state": operation.state,
        "source": operation.source,
        "queue": operation.queue,
        "pace": str(pace_of(operation.pace)),
        "why": operation.why,
        "made_by": operation.created_by,
        "made_at": operation.created_at,
        "approved_by": operation.approved_by,
        "started_at": operation.started_at,
        "closed_at": operation.closed_at,
        "paused_because": operation.paused_because,
        "pause_detail": operation.pause_detail,
        "since": since(operation),
        **how_far.as_dict(),
    }


def told(command: BaseCommand, operation_id: UUID, *, as_data: bool) -> Operation:
    """Print how far an operation is."""
    operation = operation_of(str(operation_id))
    how_far = progress(operation)
    if as_data:
        command.stdout.write(as_json(_data(operation, how_far)))
        return operation
    command.stdout.write(f"operation {operation.pk}: {operation.state}, {operation.kind}, {_line(how_far)}")
    if operation.paused_because:
        command.stdout.write(f"paused because of {operation.paused_because}: {operation.pause_detail}")
    if operation.state == OperationState.AWAITING_APPROVAL:
        command.stdout.write(
            f"somebody else must approve it: manage.py dlq_operations approve {operation.pk}"
        )
    return operation


def follow(command: BaseCommand, operation_id: UUID, *, as_data: bool) -> None:
    """Run an operation here until its outcomes are known, or it pauses. Raises CommandError unless all
    succeeded."""
    app = celery_app()
    shown = ""
    with Publisher(app) as publisher:
        while True:
            Runner(operation_id, publisher, Patience(seconds=_TURN_SECONDS)).run()
            settle(app=app, seconds=_TURN_SECONDS, operation_id=operation_id)
            operation = operation_of(str(operation_id))
            line = _line(progress(operation))
            if line != shown and not as_data:
                command.stderr.write(line)
                shown = line
            if operation.state in _ENDED:
                break
            if operation.state != OperationState.RUNNING:
                time.sleep(_LOOK_SECONDS)
    told(command, operation_id, as_data=as_data)
    how_far = progress(operation)
    if how_far.succeeded != how_far.total:
        raise CommandError(f"{how_far.succeeded} of {how_far.total} succeeded; it is {operation.state}")


def _data(operation: Operation, how_far: Progress) -> dict[str, Any]:
    return as_data(operation, how_far)


def _line(how_far: Progress) -> str:
    parts = {
        "waiting": how_far.waiting,
        "staged": how_far.staged,
        "running": how_far.sent,
        "succeeded": how_far.succeeded,
        "came back": how_far.came_back,
        "lost": how_far.lost,
        "not sent": how_far.not_sent,
    }
    counts = ", ".join(f"{number} {name}" for name, number in parts.items() if number)
    return f"{how_far.percent} % of {how_far.total}: {counts or 'nothing'}"
