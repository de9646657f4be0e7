"""Retention in every worker, from time to time: a slice bounded in time, nothing where none is set."""

from __future__ import annotations

import logging
import time
from random import uniform
from typing import Any

from django.db import DatabaseError, InterfaceError

from hardening.core.connection import drop_connection

from ..brief import slice_connection
from ..conf import database_alias, dlq_settings
from ..text import without_credentials
from .pruning import prune

__all__ = ["TURN_SECONDS", "retention_duty"]

TURN_SECONDS = 5.0
_SHARE_SECONDS = 0.2
_EVERY_SECONDS = 60.0
_PAUSE_SECONDS = 60.0
# A batch of this size is a matter of tens of milliseconds, with the attempts of its letters.
_BATCH = 200
_log = logging.getLogger(__name__)
_not_before = 0.0


def retention_duty(app: Any) -> None:
    """The periodic form, for a worker's parent process: leaves no database connection open.

    Looks once a minute, and at each turn while there is more to do.
    """
    global _not_before
    if time.monotonic() < _not_before or not dlq_settings().retention_rules.any:
        return
    pause = _EVERY_SECONDS * uniform(0.8, 1.2)
    alias = database_alias()
    try:
        with slice_connection(alias):
            done = prune(_SHARE_SECONDS, batch=_BATCH)
    # No fault of this worker: the database is down, or somebody else writes (SQLite).
    except (DatabaseError, InterfaceError) as exc:
        pause = _PAUSE_SECONDS
        text = without_credentials(f"{type(exc).__name__}: {str(exc).strip()}")
        _log.warning("old letters stay for now: %s", text)
    else:
        if done.more and not done.busy:
            pause = 0.0
        if done.rows:
            _log.info(
                "retention: %d letters discarded, %d replayed and %d discarded ones deleted, %d items",
                done.discarded,
                done.replayed_purged,
                done.discarded_purged,
                done.items,
            )
    finally:
        drop_connection(alias)
        _not_before = time.monotonic() + pause
