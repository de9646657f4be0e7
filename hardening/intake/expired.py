"""Expired tasks on the worker's side: kept, revoked as Celery does it, and all that waits for them told.

Celery revokes what comes after its `expires`, which ends a chord and nothing else: the tail of a chain and
errbacks wait for ever. And the work is gone. Here its letter is kept first; without a store that takes it
the message is held. A task that was revoked by somebody is cancelled, not expired: that is Celery's.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from celery.exceptions import TaskRevokedError
from celery.worker.state import revoked as revoked_tasks
from celery.worker.state import task_ready

from hardening.capture import LetterNotKept, delivery_of, keeper_for
from hardening.conf import load_settings
from hardening.core.reasons import Reason
from hardening.core.superseded import recorded_as_superseded
from hardening.holding import holding_for
from hardening.telling.apart import apart
from hardening.twins.here import is_severed

from .letters import raw_letter

__all__ = ["end_expired"]

logger = logging.getLogger("hardening")


class _Expired:
    """A request that is too late, and whose letter is being kept."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def settle_held(self, error_class: str, message: str) -> None:
        """Its letter is kept at last. With its channel gone the message comes again, and tells the rest."""
        if not is_severed(self._request.message):
            _announce(self._request)


def end_expired(request: Any) -> bool:
    """Whether a request that is about to begin is too late; if so, all is done about it."""
    if not _is_late(request):
        return False
    if not load_settings()[0].intake_rules.keep_expired:
        _announce(request)
        return True
    # One that was delivered before may have begun: it did not merely come too late.
    if not _came_again(request.message) and recorded_as_superseded(request.message.headers or {}, request.id):
        _announce(request)
        return True
    exc = TaskRevokedError(f"it came after its expires, {request.expires.isoformat()}")
    letter = raw_letter(
        request.app,
        delivery_of(request.message),
        reason=Reason.EXPIRED,
        error=exc,
        worker=str(request.hostname),
    )
    try:
        keeper_for(request.app).keep_and_close(letter)
    except LetterNotKept as not_kept:
        task_ready(request)
        holding_for(request.app).hold(_Expired(request), not_kept.letter)
        return True
    _announce(request)
    return True


def _came_again(message: Any) -> bool:
    return bool(message.delivery_info.get("redelivered") or (message.headers or {}).get("redelivered"))


def _is_late(request: Any) -> bool:
    expires = request.expires
    if not expires or request._already_revoked or request.id in revoked_tasks:
        return False
    return bool(datetime.now(UTC if expires.tzinfo else None) > expires)


def _announce(request: Any) -> None:
    """Tell everybody, and acknowledge. What waits for its end is told first: after the acknowledgement
    nobody would come back to it."""
    request.ended_otherwise = True
    try:
        with apart(request, whole=True):
            # As Celery does it, except that the id is not revoked for good: it did not ask for that.
            request._announce_revoked("expired", False, None, True)
    # Celery's events and receivers: the letter is kept, and the work is too late in any case.
    except Exception:
        logger.exception(
            "task %s[%s] expired, and somebody could not be told",
            request.name,
            request.id,
            extra={"task_id": request.id, "task_name": request.name},
        )
    if not request.acknowledged:
        request.acknowledge()
