"""The part of a request that counts: a start before it begins, and a death before the message goes back."""

from __future__ import annotations

import logging
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import WorkerLostError
from celery.worker import state
from celery.worker.state import task_ready

from hardening.capture import LetterNotKept
from hardening.private import celery_version
from hardening.shutdown.drain import current_drain
from hardening.shutdown.request import DrainableRequest, refusal

from .case import Case, Death, How
from .policy import Next
from .quarantine import keep_poison, poison_error, told
from .unaccepted import leaves
from .watch import Suspect, poison_for

__all__ = ["EXIT_IS_LOSS", "CountedRequest", "info_of"]

logger = logging.getLogger("hardening")

EXIT_IS_LOSS = celery_version() >= (5, 7)
"""Whether Celery takes a body's SystemExit for a lost process."""


class CountedRequest(DrainableRequest):
    """Celery's request, whose process may die of it so often and no more.

    Of its subclass it needs `_lost_for_good`, whether a death ends it for other reasons, `_hold`, for letters
    that are not kept yet, and `_report`, which tells and acknowledges.
    """

    ended_otherwise: bool

    suspect: Suspect | None = None
    """What is counted of it where it may be one that kills its process; see `watch`."""

    poisoned: tuple[Case, Exception] | None = None
    """What it is given up for."""

    _had_succeeded: Any = None

    def on_accepted(self: Any, pid: Any, time_accepted: float) -> None:
        """The pool begins with the task. What may kill its process is written down before."""
        if not self._may_begin():
            raise refusal()
        try:
            super().on_accepted(pid, time_accepted)
        except BaseException:  # It was given back meanwhile.
            poison_for(self._app).end(self)
            raise

    def _may_begin(self: Any) -> bool:
        """Whether the start is written, or need not be. Else the message goes to its end, or back."""
        if self.suspect is None or self.is_given_back:
            return True
        refused = poison_for(self._app).begin(self)
        if refused is None:
            return True
        case, decision = refused
        if decision.next is Next.QUARANTINE:
            self.end_as_poison(case)
        elif decision.next is Next.REFUSE:
            self._end_refused()
        elif self.claim_for_return():
            task_ready(self)
            self.reject(requeue=True)
        return False

    def _end_refused(self: Any) -> None:
        """A copy of it was given up meanwhile, and its letter stands for this one too."""
        if not self.claim_to_end():
            return
        logger.warning(
            "task %s[%s] is not run again: it was given up, and this copy of it is acknowledged",
            self.name,
            self.id,
            extra={"task_id": self.id, "task_name": self.name},
        )
        self.ended_otherwise = True
        task_ready(self)
        self.acknowledge()

    def _death(self: Any, exc: BaseException) -> Death | None:
        """The death that it ended with, if it was of its own doing and its message goes on living."""
        if isinstance(exc, SystemExit):
            leaves(self.worker_pid)
        if self.was_cut or self._already_cancelled or self._already_revoked or self._lost_for_good():
            return None
        flags: Any = state
        if flags.should_terminate is not None and flags.should_terminate is not False:
            return None  # Celery's cold shutdown ends its children.
        death = poison_for(self._app).death_of(self, exc)
        drain = current_drain()
        if death is not None and drain is not None and drain.asked and death.is_of_sigterm:
            return None  # Some supervisors tell each process of the worker to stop.
        return death

    def _died(self: Any, death: Death, exc: BaseException, exc_info: Any, send_failed_event: bool) -> Any:
        """Its process died. Written down before the message goes back, or ends here as a letter."""
        if death.how != How.MEMORY and self._success_was_stored():
            poison_for(self._app).end(self)
            return super().on_failure(exc_info, send_failed_event, False)
        case, decision = poison_for(self._app).died(self, death)
        if decision.next is Next.QUARANTINE:
            self.end_as_poison(case)
            return None
        if death.how == How.MEMORY:  # To Celery it is the end of the worker, or a thing to be ignored.
            self._give_back()
            return None
        if not EXIT_IS_LOSS and not isinstance(exc, WorkerLostError):
            exc_info = info_of(WorkerLostError(f"Worker exited prematurely: {exc!r}."))
        return super().on_failure(exc_info, send_failed_event, False)

    def _give_back(self: Any) -> None:
        """The message goes back unfinished."""
        if self.was_cut:
            self.end_cut()
            return
        task_ready(self)
        self.reject(requeue=True)

    def _success_was_stored(self: Any) -> Any:
        """Whether the child had stored its success before it died. Celery 5.7 asks; once."""
        if self._had_succeeded is None:
            ask = getattr(super(), "_success_was_stored", None)
            self._had_succeeded = ask() if ask is not None else False
        return self._had_succeeded

    def end_as_poison(self: Any, case: Case) -> None:
        """It does not run again: letter, result, acknowledgement. To be called once."""
        self.ended_otherwise = True
        if not self.claim_to_end():
            return
        poison_for(self._app).end(self)
        self.poisoned = (case, poison_error(case))
        try:
            keep_poison(self, *self.poisoned)
        except LetterNotKept as not_kept:
            self._hold(not_kept)
            return
        self._settle_poisoned()

    def _settle_poisoned(self: Any) -> None:
        case, error = self.poisoned
        self._report(super().on_failure, info_of(error), True, False)
        told(poison_for(self._app), self, case)


def info_of(exc: Exception) -> ExceptionInfo:
    """An error as a pool reports it."""
    try:
        raise exc
    except Exception:
        return ExceptionInfo()
