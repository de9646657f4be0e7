"""What the runner of a chord's re-run sends before the first letter: the chord, then the members without one.

The order is: all letters of the operation are claimed; the chord is made known to the result backend (its
size, or the task that polls for its parts), and its row deleted; the members that had succeeded are published
with confirm, and each one's row deleted; then the letters go, as in any operation. The last member to end
publishes the body, as in any chord.

If the process dies
- before the chord's row is deleted: it is made known once more. No member was sent by then, so its size is
  only set again; a second task that polls publishes the same body, under the same id and key, of which a
  hardened worker runs one.
- before the row of a member is deleted: its message is sent once more, with the same id and key, and refused
  where the first one ran.
What remains: workers know of a success for 12 h. A member that is sent again later than that runs again, as
it does in every operation; and where the body is a group or a chord of its own, nothing refuses a second one.

A member that cannot be sent (its queue takes nothing) ends the operation: its letters are open again, and the
members that were sent by then have run for nothing.

Outcomes are told of letters. A member without one that fails this time is a letter of its own, in the new
chord, which can be run again in the same way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery import Celery

from ..conf import dlq_settings
from ..errors import CannotUnseal, NoDestination
from ..models import Operation, OperationItem, OperationMessage
from ..sealing import unseal
from .chord_messages import outgoing_member
from .chord_rerun import CHORD
from .publishing import Outgoing, Published, Publisher, error_text
from .records import record_of
from .states import ItemState

__all__ = ["NotReady", "is_chord", "send_first"]

_ANSWER_SECONDS = 10.0
_STARTED = (ItemState.STAGED, ItemState.SENT, ItemState.SUCCEEDED, ItemState.CAME_BACK, ItemState.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """Why no letter may be sent. `later`: as when the broker is away; else never."""

    error: str
    later: bool


def is_chord(operation: Operation) -> bool:
    """Whether something goes before its letters."""
    return bool(operation.source.get("kind") == CHORD)


def send_first(
    operation: Operation, publisher: Publisher, *, is_fanout: Callable[[str], bool], alias: str
) -> NotReady | None:
    """Send what is owed beside the letters, all of which are claimed. None: the letters may go."""
    items = OperationItem.objects.using(alias).filter(operation_id=operation.pk, state__in=_STARTED)
    if items.count() != operation.total:
        return NotReady(error="another member of the chord cannot be sent: none is", later=False)
    rows = OperationMessage.objects.using(alias).filter(operation_id=operation.pk).order_by("position")
    for row in rows.filter(position=0):
        try:
            _make_known(publisher.app, _plan_of(row))
        except CannotUnseal as exc:
            return NotReady(error=str(exc), later=False)
        # Whatever a result backend raises: it is away, or will be repaired.
        except Exception as exc:
            return NotReady(error=f"the result backend: {error_text(exc)}", later=True)
        row.delete()
    return _send_members(rows, publisher, is_fanout, alias)


def _send_members(
    rows: Any, publisher: Publisher, is_fanout: Callable[[str], bool], alias: str
) -> NotReady | None:
    messages: list[Outgoing] = []
    try:
        for row in rows:
            record = record_of(row.sealed, row.sealed_with, row.task_id)
            messages.append(outgoing_member(record, task_id=row.task_id, queue=None, is_fanout=is_fanout))
    except (CannotUnseal, NoDestination) as exc:
        return NotReady(error=str(exc), later=False)
    published = Published()
    try:
        if messages:
            publisher.send(messages, published)
    finally:
        # Also when we are interrupted: what was sent is not sent again.
        rows.filter(task_id__in=[each.task_id for each in published.sent]).delete()
    if published.failed:
        message, error = published.failed[0]
        return NotReady(error=f"member {message.task_id} of the chord: {error}", later=False)
    if published.unreachable is not None:
        return NotReady(error=published.unreachable, later=True)
    return None


def _plan_of(row: OperationMessage) -> dict[str, Any]:
    plain = unseal(bytes(row.sealed), row.sealed_with, dlq_settings().encryption_keys, letter_id=row.task_id)
    found: dict[str, Any] = json.loads(plain)
    return found


def _make_known(app: Celery, plan: dict[str, Any]) -> None:
    """As Celery does it for a chord, before it sends the last member. Raises whatever the backend does.

    A backend may be silent for minutes, and a worker's parent must not wait so long: then it goes on by
    itself, and what it does late is what is done again by then.
    """
    errors: list[Exception] = []

    def tell() -> None:
        try:
            _tell(app, plan)
        except Exception as exc:
            errors.append(exc)

    telling = threading.Thread(target=tell, name="dlq chord", daemon=True)
    telling.start()
    telling.join(_ANSWER_SECONDS)
    if telling.is_alive():
        raise TimeoutError(f"no answer for {_ANSWER_SECONDS:g} s")
    if errors:
        raise errors[0]


def _tell(app: Celery, plan: dict[str, Any]) -> None:
    backend: Any = app.backend
    results = [app.AsyncResult(task_id) for task_id in plan["results"]]
    backend.ensure_chords_allowed()
    backend.set_chord_size(plan["group"], len(results))
    backend.apply_chord((plan["group"], results), app.signature(plan["body"]))
