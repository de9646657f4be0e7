"""The replay that an operator makes: an operation, examined, started, and followed to its outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hardening.core.apps import celery_app
from sample_project.demo.outcomes import Outcomes
from sample_project.demo.progress import Progress, say

if TYPE_CHECKING:
    from dlq.models import Operation

OPERATOR = "operator"
WHY = "the web server and the mail server were mended"
STEPS = (1, 2, 5, 20, 50, 100)
TURN_SECONDS = 0.5
PAUSE_SECONDS = 0.1


def replay_letters(ids: Sequence[str], *, check: Callable[[], None], timeout: float) -> Outcomes:
    """Send these jobs again, few first, each step after the outcomes of the one before; what became of them.

    As the admin does it, or `manage.py dlq_replay --pace ramp --wait`. `check` is called at each turn; it
    raises when waiting on makes no sense. It returns when all outcomes are known, when the operation has
    paused, or after `timeout`.
    """
    from dlq.operations.control import start  # Not before Django is set up.
    from dlq.operations.examine import examine
    from dlq.operations.making import make_operation
    from dlq.operations.outcomes import settle
    from dlq.operations.pace import Ramp
    from dlq.operations.runner import run_operation
    from dlq.operations.states import OperationState

    app = celery_app()
    operation = make_operation(letters=ids, by=OPERATOR, why=WHY, pace=Ramp(steps=STEPS))
    examine(operation.pk, app=app)
    said = ", ".join(
        f"{verdict} {number}" for verdict, number in sorted(_outcomes(operation).verdicts.items())
    )
    say(f"dry run of {operation.total} letters, nothing is sent yet: {said}")
    start(operation.pk, by=OPERATOR)
    bar = Progress("outcomes known", operation.total)
    deadline = time.monotonic() + timeout
    try:
        while True:
            check()
            run_operation(operation.pk, app=app, seconds=TURN_SECONDS)
            settle(app=app, seconds=TURN_SECONDS, operation_id=operation.pk)
            operation.refresh_from_db()
            found = _outcomes(operation)
            bar.show(found.known)
            over = operation.state in (OperationState.CLOSED, OperationState.PAUSED)
            if over or time.monotonic() >= deadline:
                return found
            time.sleep(PAUSE_SECONDS)
    finally:
        bar.end()


def _outcomes(operation: Operation) -> Outcomes:
    from dlq.operations.pace import pace_of
    from dlq.operations.progress import progress

    found = progress(operation)
    return Outcomes(
        name=str(operation.pk)[:8],
        state=operation.state,
        pace=str(pace_of(operation.pace)),
        total=operation.total,
        verdicts={verdict: number for verdict, number in found.verdicts.items() if verdict},
        succeeded=found.succeeded,
        came_back=found.came_back,
        same_cause=found.same_cause,
        lost=found.lost,
        running=found.sent,
        not_sent=found.not_sent,
        paused=operation.pause_detail,
    )
