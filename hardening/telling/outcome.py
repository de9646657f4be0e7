"""Outcome: how one message ended, and the pieces of it that are told: result, chord, chain, errbacks.

Each piece is told by itself: one that cannot be told does not keep the others from it. A piece that the
backend gave no answer about is told again later; errbacks are sent once, whatever the backend does.

A result that is told late must not take the place of a newer one. Before anything is told the backend is
asked how the task stands: after a success nothing is told, and what is late is not told where anybody else
has told an end meanwhile. A replay that is at work then tells its own end, which takes the place of this one.
Not asked: who ignores results, and RPC, whose results are on their way to the caller; a caller that has one
takes no second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from celery import Celery, states
from kombu.exceptions import EncodeError

from hardening.standing import forget_part, is_left_behind

__all__ = ["ChordNotYet", "Outcome", "is_passing"]

logger = logging.getLogger("hardening")

_LATE_SECONDS = 2.0
_LASTING = (TypeError, ValueError, AttributeError, LookupError, NotImplementedError, EncodeError)
"""Errors that say something of what is told. Anything else says that it could not be told now."""

_CHORD_SECONDS = 600.0
_LONGEST_SECONDS = 3600.0


class ChordNotYet(Exception):
    """Its part is counted, and its chord does not go on: somebody has taken its body, and may be dead."""


class _NoAnswer(Exception):
    """Stands for pieces that are not tried, since the backend does not answer."""


@dataclass(eq=False)
class _Piece:
    tell: Callable[[Any], object]
    once: bool = False
    is_result: bool = False


class Outcome:
    """How a message ended. `request` is Celery's context of it.

    `stored`: whether its result is. `decoded`: whether its body, in which its canvas travels, was read.
    """

    def __init__(
        self,
        app: Celery,
        request: Any,
        exc: BaseException,
        state: str,
        *,
        task: Any = None,
        stored: bool = True,
        decoded: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = str(request.id)
        self.name = str(request.task or "")
        self._app = app
        self._request = request
        self._exc = exc
        self._state = state
        self._task = task
        self._stored = stored
        self._decoded = decoded
        self._clock = clock
        self._since = clock()
        self._tried = False
        self._pieces: list[_Piece] = []

    def result(self, traceback: Any = None) -> Outcome:
        """With its result."""
        if self._stored:
            request = self._request

            def tell(backend: Any) -> None:
                self._tried = True
                backend.store_result(request.id, self._exc, self._state, traceback=traceback, request=request)

            self._pieces.append(_Piece(tell, is_result=True))
        return self

    def chord(self) -> Outcome:
        """With its part of a chord."""
        if self._request.chord:
            self._pieces.append(_Piece(self._tell_part))
        elif self._request.group and not self._decoded:
            self._pieces.append(_Piece(self._tell_part_unread))
        return self

    def rest(self) -> Outcome:
        """With what comes after it: the rest of its chain, and errbacks."""
        if self._request.chain:
            self._pieces.append(_Piece(self._fail_chain))
        if self._request.errbacks:
            self._pieces.append(_Piece(self._call_errbacks, once=True))
        return self

    @property
    def is_told(self) -> bool:
        """Whether nothing is left to tell."""
        return not self._pieces

    def tell(self, *, reach: bool = True) -> Exception | None:
        """Tell what can be told. What is left is told by another call: if anything, why it is.

        Without `reach` the backend is not asked, and only what does not need it is told.
        """
        silent: Exception | None = None if reach else _NoAnswer("it is left alone")
        backend: Any = None
        try:
            backend = (self._app if self._task is None else self._task).backend
            if silent is None and self._is_overtaken(backend):
                self._pieces.clear()
                return None
        except Exception as exc:
            silent = exc
        if silent is not None and not is_passing(silent):
            self._say(silent)
            self._pieces.clear()
            return None
        for piece in list(self._pieces):
            if silent is not None and not piece.once:
                continue
            error = self._told(piece, backend)
            if error is None:
                self._pieces.remove(piece)
            elif not isinstance(error, ChordNotYet):
                silent = silent or error
        if not self._pieces:
            return None
        return self._end_in_time(silent or ChordNotYet("its body is taken"))

    def _end_in_time(self, error: Exception) -> Exception | None:
        longest = _CHORD_SECONDS if isinstance(error, ChordNotYet) else _LONGEST_SECONDS
        if isinstance(error, _NoAnswer) or self._clock() - self._since < longest:
            return error
        self._say(error)
        self._pieces.clear()
        return None

    def _told(self, piece: _Piece, backend: Any) -> Exception | None:
        try:
            piece.tell(backend)
        except ChordNotYet as exc:
            return exc
        # Result backend, errback or broker: the letter is kept, and the others are to be told. An errback is
        # the project's code, and an exit in it would end the thread that tells, and no more.
        except (Exception, SystemExit) as exc:
            if isinstance(exc, Exception) and is_passing(exc) and not piece.once:
                return exc
            self._say(exc)
        return None

    def _say(self, exc: BaseException) -> None:
        logger.error(
            "message %s has its dead letter, but somebody who waits for it could not be told",
            self.id,
            exc_info=exc,
            extra={"task_id": self.id},
        )

    def _is_overtaken(self, backend: Any) -> bool:
        """Whether somebody has told a newer end meanwhile."""
        if not self._stored or not _can_be_asked(backend):
            return False
        try:
            status: str = backend.get_task_meta(self.id, cache=False)["status"]
        except _LASTING:  # A backend that is only written to, or something there that nobody can read.
            logger.debug("how task %s stands cannot be asked", self.id, exc_info=True)
            return False
        is_newer = status == states.SUCCESS
        if not is_newer and self._clock() - self._since > _LATE_SECONDS and not self._tried:
            is_end = self._state in states.READY_STATES
            is_newer = status in (states.READY_STATES if is_end else {*states.READY_STATES, states.STARTED})
        if is_newer:
            logger.info(
                "the end of task %s[%s], %s, is not told: it is %s meanwhile",
                self.name,
                self.id,
                self._state,
                status,
                extra={"task_id": self.id, "task_name": self.name},
            )
        return is_newer

    def _tell_part(self, backend: Any) -> None:
        forget_part(backend, self._request)
        backend.on_chord_part_return(self._request, self._state, self._exc)
        if is_left_behind(backend, self._request):
            raise ChordNotYet("its body is taken")

    def _tell_part_unread(self, backend: Any) -> None:
        # Of a chord, perhaps. Without its signature only Redis counts a part, and raises at the last one.
        with suppress(*_LASTING):
            forget_part(backend, self._request)
            backend.on_chord_part_return(self._request, self._state, self._exc)

    def _fail_chain(self, backend: Any) -> None:
        from celery.app.task import Context

        # Celery's own way to the tail, for a request of whose chord nothing is to be told.
        rest: Any = Context(vars(self._request), chord=None)
        if not self._stored:
            backend.mark_as_failure(rest.id, self._exc, request=rest, store_result=False, call_errbacks=False)
            return
        # It stores the result of the head once more: the same one.
        backend.mark_as_failure(rest.id, self._exc, request=rest, call_errbacks=False, state=self._state)

    def _call_errbacks(self, backend: Any) -> None:
        backend._call_task_errbacks(self._request, self._exc, None)


def is_passing(exc: Exception) -> bool:
    """Whether the same may be told later."""
    return not isinstance(exc, _LASTING)


def _can_be_asked(backend: Any) -> bool:
    from celery.backends.base import DisabledBackend

    if isinstance(backend, DisabledBackend):
        return False
    as_uri = getattr(backend, "as_uri", None)
    return not (callable(as_uri) and as_uri() == "rpc://")
