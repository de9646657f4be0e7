"""PatientStore: asks the store of shared state, and leaves one alone that does not answer.

For those who go on without an answer: the main loop waits for it, so a store that is silent is asked again
only after some seconds, then less and less often, and that is said so at most once a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from celery import Celery

from hardening.conf import load_settings
from hardening.core.loading import BackendError
from hardening.store import StateStore, StoreBusy, StoreUnavailable, chosen_store

__all__ = ["PatientStore"]

logger = logging.getLogger("hardening")

T = TypeVar("T")

_LEFT_ALONE_SECONDS = 5.0
_LEFT_ALONE_LONGEST = 60.0
_LONG_SECONDS = 1.0
"""The main loop waits for the answers: a store that keeps it waiting so long is left alone as well."""

_SAID_EVERY_SECONDS = 60.0


class PatientStore:
    """The store of an app, for one who admits what it cannot ask about."""

    def __init__(
        self,
        app: Celery,
        says: str,
        *,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`says` is what it means that the store does not answer, for the log."""
        self._app = app
        self._says = says
        self._store = store
        self._clock = clock
        self._down_until = 0.0
        self._left_alone = _LEFT_ALONE_SECONDS
        self._silent_until = 0.0

    def opened(self) -> StateStore:
        """The store itself. Raises BackendError where the settings name none that there is."""
        if self._store is None:
            self._store = chosen_store(self._app, load_settings()[0])
        return self._store

    @property
    def unreachable(self) -> bool:
        """Whether the store is left alone now."""
        return self._clock() < self._down_until

    def ask(self, question: Callable[[StateStore], T], otherwise: T) -> T:
        """What the store says; `otherwise` where it does not answer."""
        if self.unreachable:
            return otherwise
        asked_at = self._clock()
        try:
            answer = question(self.opened())
        # Whatever the store raises: admit, and say so.
        except Exception as exc:
            waited = self._clock() - asked_at >= _LONG_SECONDS
            if isinstance(exc, (StoreUnavailable, BackendError)) and (
                waited or not isinstance(exc, StoreBusy)
            ):
                self._down_until = self._clock() + self._left_alone
                self._left_alone = min(self._left_alone * 2, _LEFT_ALONE_LONGEST)
            self._say_down(exc)
            return otherwise
        self._left_alone = _LEFT_ALONE_SECONDS
        return answer

    def _say_down(self, exc: Exception) -> None:
        if self._clock() >= self._silent_until:
            self._silent_until = self._clock() + _SAID_EVERY_SECONDS
            logger.warning("%s: %s", self._says, exc)
