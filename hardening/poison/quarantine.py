"""Quarantine: the end of a work that kills its processes. Letter, result, acknowledgement, case, event.

In this order, each step after the former is durable. Dying after the letter: the message comes back, its case
says the same, and the letter is the same one. The acknowledgement may be lost on its way: the closed case
refuses the copies of this publish (see `watch`). Dying before the case is closed: it stays until its time is
over, and gives up whatever comes under the same name and replay number; a replay has the next number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hardening.capture import delivery_of, keeper_for
from hardening.core.errors import PoisonTask
from hardening.core.events import task_quarantined, tell
from hardening.core.identity import ATTEMPTS_HEADER, identity_of
from hardening.core.letter import DeadLetter
from hardening.core.reasons import Reason
from hardening.history import decode_history

from .case import Case
from .death import attempts_of, described, kind_of
from .watch import PoisonWatch

__all__ = ["keep_poison", "poison_error", "told"]


def poison_error(case: Case) -> PoisonTask:
    """The error that the task's result carries."""
    deaths = ", ".join(kind_of(death) for death in case.deaths)
    last = f"; the last time, {described(case.deaths[-1])}" if case.deaths else ""
    return PoisonTask(f"given up after {case.count} starts that ended with their process: {deaths}{last}")


def keep_poison(request: Any, case: Case, error: PoisonTask) -> None:
    """Keep the letter of a request that is given up. Raises LetterNotKept, with the letter in it."""
    keeper = keeper_for(request._app)
    try:
        letter = _letter(keeper, request, case)
    # Whatever is odd about a message, it must not end without a letter.
    except Exception:
        letter = keeper.parent_letter(request, error, Reason.POISON)
    keeper.keep_and_close(letter)


def _letter(keeper: Any, request: Any, case: Case) -> DeadLetter:
    delivery = delivery_of(request.message)
    payload = request._payload
    embedded = payload[2] if isinstance(payload, (list, tuple)) and len(payload) > 2 else {}
    clean = keeper.cleaner(request.task, request)
    attempts = attempts_of(case, decode_history(delivery.headers.get(ATTEMPTS_HEADER)))
    letter: DeadLetter = keeper.letter(
        task=request.task,
        task_id=request.id,
        delivery=delivery,
        embedded=embedded if isinstance(embedded, dict) else {},
        reason=Reason.POISON,
        attempts=[replace(attempt, message=clean(attempt.message)) for attempt in attempts],
        worker=str(request.hostname or ""),
    )
    return letter


def told(watch: PoisonWatch, request: Any, case: Case) -> None:
    """The letter is kept and the message acknowledged: its case is closed, and who watches is told."""
    watch.give_up(request.message)
    tell(
        task_quarantined,
        app=watch.app,
        task_id=request.id,
        task_name=request.name,
        delivery_key=identity_of(request.message.headers, request.id).delivery_key,
        deaths=case.count,
        limit=watch.terms_of(request.task).limit,
    )
