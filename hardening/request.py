"""What the worker's parent does with a request: time limit, lost child, and no acknowledgement unkept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from celery import signals
from celery.exceptions import Ignore, Reject, Retry, Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker import state
from celery.worker.state import task_ready

from .capture import DELIVERY, LetterNotKept, delivery_of, keeper_for
from .chords import chords_for
from .core.identity import FIRST_HEADER, first_header
from .core.reasons import Reason
from .delayed.entry import is_due
from .history import attempt_number
from .holding import holding_for
from .intake.expired import end_expired
from .intake.rejected import note_kept
from .leases.starting import is_postponed
from .poison.death import OutOfMemory
from .poison.request import EXIT_IS_LOSS, CountedRequest, info_of
from .poison.returned import note_returned
from .poison.watch import poison_for
from .private import celery_version
from .returning import FIRST_SEEN, RetryNotSent, returning_for
from .telling.apart import apart
from .telling.teller import NoAnswer, teller_for
from .trace import CUT_OFF, error_of
from .twins.here import is_severed, succeeded
from .twins.watch import twins_for
from .twins.work import may_have_twin

__all__ = ["HardenedRequest"]

logger = logging.getLogger("hardening")

_HARD_LIMIT_RUNS_HOOKS = celery_version() >= (5, 7)
_REJECT_IS_FAILURE = celery_version() >= (5, 7)


class HeldFailure(Exception):
    """Stands for an error whose letter was kept late: only its class path and text are left."""


class HardenedRequest(CountedRequest):
    """Celery's request, guarded. Whatever the child could not see ends as a letter here.

    The child keeps its own letters (see `execution`); what it answered arrives with
    `return_ok=True` and is settled. Everything else - a killed child, a hard time limit, an error
    of the pool itself - only this process can keep.
    """

    twin: Any = None
    """What is known of it where a copy of its message may be at work; see `twins.watch`."""

    ended_otherwise = False
    """Whether anything but a success was reported of it."""

    in_doubt = False
    """Whether its process was lost: what it was telling the result backend may be half told."""

    chord_settled = False
    """Whether its chord goes on without it, as far as can be known; see `chords`."""

    _teller = 0
    """The thread that tells how it ended, while it does."""

    _end_after: Callable[[], Any] | None = None

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(message, *args, **kwargs)
        mine: Any = self
        properties = mine._request_dict.get("properties") or {}
        mine._request_dict["properties"] = {**properties, DELIVERY: delivery_of(message)}
        _drop_what_is_no_field(mine._request_dict)
        if FIRST_SEEN and mine.id in FIRST_SEEN:
            mine._request_dict.setdefault(FIRST_HEADER, first_header(FIRST_SEEN[mine.id], mine.id))
        if may_have_twin(message):
            self.twin = twins_for(mine._app).begin(self)
        self.suspect = poison_for(mine._app).concerns(self)

    @property
    def eta(self: Any) -> Any:
        """When the strategy is to start it; None at once. The task still reads its time in `request.eta`."""
        return None if is_due(self.message) else super().eta

    def revoked(self: Any) -> bool:
        """Asked by Celery before it starts a task: not one that went back, or whose lease is not sure."""
        if self.is_given_back or (not self.has_begun and is_postponed(self)):
            return True
        if self.expires and end_expired(self):
            return True
        if super().revoked():
            return True
        # Asked as well when it arrives, long before it starts.
        return (
            poison_for(self._app).at_hand_over and self in state.reserved_requests and not self._may_begin()
        )

    def on_failure(self: Any, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """The task failed. Acknowledged only when its letter is kept, by the child or here."""
        with apart(self):
            return self._on_failure(exc_info, send_failed_event, return_ok)

    def _on_failure(self: Any, exc_info: Any, send_failed_event: bool, return_ok: bool) -> Any:
        self.ended_otherwise = True
        self.in_doubt = self.in_doubt or not return_ok
        exc = error_of(exc_info)
        death = self._death(exc)
        if death is not None:
            return self._died(death, exc, exc_info, send_failed_event)
        poison_for(self._app).end(self)
        if isinstance(exc, (MemoryError, OutOfMemory)):
            if not self._lost_for_good():
                return self._give_back()
            exc = WorkerLostError(f"The task had no memory left: {exc}")  # Celery would end the worker.
            exc_info, return_ok = info_of(exc), False
        if isinstance(exc, (LetterNotKept, RetryNotSent)):
            return self._hold(exc)
        return self._failed(exc, exc_info, send_failed_event, return_ok)

    def _failed(
        self: Any, exc: BaseException, exc_info: Any, send_failed_event: bool, return_ok: bool
    ) -> Any:
        if isinstance(exc, (SystemExit, KeyboardInterrupt)) and not EXIT_IS_LOSS:
            # Celery 5.6 would acknowledge it as a failure; billiard reports it before the child is gone.
            if self._already_cancelled or self._already_revoked:
                return None
            exc = WorkerLostError(f"Worker exited prematurely: {exc!r}.")
            exc_info = info_of(exc)
        if isinstance(exc, Reject) and getattr(exc, "requeue", False):
            note_returned(self._app, [self.message], judged=False)
        if return_ok:
            if isinstance(exc, Reject) and not getattr(exc, "requeue", False):
                return self._reject_kept(exc, exc_info)
            return super().on_failure(exc_info, send_failed_event, return_ok)
        if isinstance(exc, TimeLimitExceeded):
            # The pool reports a hard limit twice, here and to on_timeout, which is the complete one.
            return None
        reason = self._final_reason(exc)
        if reason is None:
            return super().on_failure(exc_info, send_failed_event, return_ok)
        try:
            self._keep(exc, reason)
        except LetterNotKept as not_kept:
            return self._hold(not_kept)
        if isinstance(exc, Reject):
            return self._reject_kept(exc, exc_info)
        return self._report(super().on_failure, exc_info, send_failed_event, return_ok)

    def acknowledge(self: Any) -> None:
        """Acknowledge, but not a task whose greenlet was killed: it has not ended, and comes back."""
        if self._is_being_told(self.acknowledge):
            return
        if self.id in CUT_OFF:
            CUT_OFF.discard(self.id)
            if self.was_cut:
                self.end_cut()
                return
            logger.warning("task %s[%s] was cut off; its message stays unacknowledged", self.name, self.id)
            self.ended_otherwise = True
            twins_for(self._app).end(self)
            poison_for(self._app).end(self)
            return
        if not self._chord_waits(self.acknowledge) and self._ends():
            super().acknowledge()

    def reject(self: Any, requeue: bool = False) -> None:
        """Reject: the message goes back or away, and this worker runs it no longer."""
        self.ended_otherwise = self.ended_otherwise or not self.acknowledged
        if self._is_being_told(partial(self.reject, requeue)):
            return
        if not requeue and self._chord_waits(self.reject):
            return
        if self._ends():
            super().reject(requeue)

    def _chord_waits(self: Any, end: Callable[[], Any]) -> bool:
        """Whether it has to be held for the sake of its chord, and `end` is called later."""
        if self.acknowledged or self.chord_settled or not (self.in_doubt or self.twin is not None):
            return False
        return chords_for(self._app).hold(self, end)

    def _is_being_told(self: Any, end: Callable[[], Any]) -> bool:
        """Whether Celery is about to tell how it ended: it does so after the acknowledgement, and who dies in
        between has told nobody. `end` is called when it has."""
        if self._teller != get_ident():
            return False
        self._end_after = self._end_after or end
        return True

    def let_go(self: Any) -> None:
        """Its message is about to go back unfinished: this worker is at work on it no longer."""
        self.ended_otherwise = True
        twins_for(self._app).end(self)
        poison_for(self._app).end(self)

    def _ends(self: Any) -> bool:
        """Whether the broker is to be told. Its success is recorded before."""
        if self.acknowledged:
            return False
        success = succeeded(self)
        twins_for(self._app).end(self)
        poison_for(self._app).end(self, success=success)
        if not is_severed(self.message):
            return True
        logger.info(
            "task %s[%s] ended after its channel; its message came back, or is with the broker",
            self.name,
            self.id,
        )
        self.acknowledged = True
        return False

    def terminate(self: Any, pool: Any, signal: Any = None) -> None:
        """Revoked while it runs: acknowledged, and no success."""
        self.ended_otherwise = True
        super().terminate(pool, signal)

    def on_timeout(self: Any, soft: bool, timeout: float) -> Any:
        """A time limit passed. A hard one ended the task: kept, reported and acknowledged once."""
        if soft:
            return super().on_timeout(soft, timeout)
        with apart(self):
            return self._on_hard_timeout(timeout)

    def _on_hard_timeout(self: Any, timeout: float) -> Any:
        self.ended_otherwise = self.in_doubt = True
        exc = TimeLimitExceeded(timeout)
        try:
            self._keep(exc, Reason.TIME_LIMIT)
        except LetterNotKept as not_kept:
            return self._hold(not_kept)
        if _HARD_LIMIT_RUNS_HOOKS:
            return self._report(super().on_timeout, False, timeout)
        logger.error("hard time limit (%ss) exceeded for %s[%s]", timeout, self.name, self.id)
        # Celery 5.6 runs no failure hook on a hard limit; 5.7 does, and so does every failure.
        info = info_of(exc)
        self._report(self.task.on_failure, exc, self.id, self.args, self.kwargs, info, acknowledge=False)
        return self._report(super().on_failure, info, True, False)

    def _announce_revoked(self: Any, *args: Any) -> None:
        with apart(self):
            super()._announce_revoked(*args)  # type: ignore[misc]

    def _announce_cancelled(self: Any, *args: Any, **options: Any) -> None:
        with apart(self):
            super()._announce_cancelled(*args, **options)  # type: ignore[misc]

    def _success_was_stored(self: Any) -> Any:
        """As Celery 5.7 asks; a result backend that does not answer in time has stored none."""
        try:
            return teller_for(self._app).ask(super()._success_was_stored)
        except NoAnswer:
            return False

    def _final_reason(self: Any, exc: BaseException) -> Reason | None:
        """The reason of a failure that ends the message's life here, or None when it goes on living."""
        if isinstance(exc, (Ignore, Retry, Terminated)):
            return None
        if isinstance(exc, Reject):
            return None if getattr(exc, "requeue", False) else Reason.REJECTED
        if isinstance(exc, (WorkerLostError, SystemExit, KeyboardInterrupt)):
            return Reason.WORKER_LOST if self._lost_for_good() else None
        return Reason.INTERNAL_ERROR

    def _lost_for_good(self: Any) -> bool:
        task = self.task
        if getattr(task, "retry_on_worker_lost", False):
            limit = task.max_retries
            return limit is not None and attempt_number(self._request_dict.get("retries")) > limit
        return not (task.acks_late and task.reject_on_worker_lost)

    def _keep(self: Any, exc: BaseException, reason: Reason) -> None:
        keeper = keeper_for(self._app)
        keeper.keep_and_close(keeper.parent_letter(self, exc, reason))

    def _hold(self: Any, unsettled: LetterNotKept | RetryNotSent) -> None:
        """Not acknowledged: the letter is tried again, or the message goes back to the broker, later."""
        task_ready(self)
        if isinstance(unsettled, RetryNotSent):
            returning_for(self._app).keep(self, unsettled.seconds)
            return
        holding_for(self._app).hold(self, unsettled.letter)

    def settle_held(self: Any, error_class: str, message: str) -> None:
        """The held letter has been kept at last: report the failure and acknowledge. With its channel gone
        the broker has it back: it comes again, and whoever gets it tells the rest, once."""
        if is_severed(self.message):
            self._ends()
            return
        if self.poisoned is not None:
            self._settle_poisoned()
            return
        info = info_of(HeldFailure(f"{error_class}: {message}"))
        self._report(super().on_failure, info, True, False)

    def _report(self: Any, report: Any, *args: Any, acknowledge: bool = True) -> None:
        """Let Celery report a failure whose letter is kept, and acknowledge then. Acknowledged even if nobody
        can be told: without it the work would run again although its letter waits for an operator."""
        self._teller, self._end_after = get_ident(), None
        try:
            with apart(self):
                report(*args)
        # Result backend, hook or errback: whatever fails here, the letter is kept.
        except Exception:
            logger.exception(
                "task %s[%s] has its dead letter, but its failure could not be reported", self.name, self.id
            )
        finally:
            self._teller, end, self._end_after = 0, self._end_after, None
        if end is not None:
            end()
        if acknowledge and self.task.acks_late:
            self.acknowledge()

    def _reject_kept(self: Any, exc: Reject, exc_info: Any) -> None:
        """A rejected task whose letter is kept: failed, told to its callers, off the queue."""
        note_kept(self._app, self.message)
        if not _REJECT_IS_FAILURE:
            self._report(self._tell_rejection, exc, exc_info, acknowledge=False)
        self._report(super().on_failure, exc_info, True, True, acknowledge=False)
        self.reject(requeue=False)

    def _tell_rejection(self: Any, exc: Reject, exc_info: Any) -> None:
        """What Celery 5.7 does itself."""
        self.task.backend.mark_as_failure(self.id, exc, request=self._context, store_result=self.store_errors)
        signals.task_failure.send(
            sender=self.task,
            task_id=self.id,
            exception=exc,
            args=self.args,
            kwargs=self.kwargs,
            traceback=exc_info.traceback,
            einfo=exc_info,
        )


def _drop_what_is_no_field(fields: dict[str, Any]) -> None:
    """Headers that a result backend would take for what Celery keeps in a request, and stumble over."""
    fields.pop("_children", None)
    if not isinstance(fields.get("headers"), (dict, type(None))):
        del fields["headers"]
