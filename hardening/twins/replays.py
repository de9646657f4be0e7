"""Answers which replays succeeded, out of the records that keep their copies from running again."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from celery import Celery

from hardening.conf import load_settings
from hardening.core.identity import KEY_HEADER, REPLAY_HEADER
from hardening.core.successes import ReplayedWork

from .records import Records
from .work import Work

__all__ = ["RecordedSuccesses"]


class RecordedSuccesses:
    """Implements `hardening.core.successes.Successes`. Which way it fails: nothing is known."""

    def __init__(self, app: Celery, *, records: Records | None = None) -> None:
        self._records = records or Records(app, lease_seconds=load_settings()[0].lease_terms.seconds)

    def known(self, works: Sequence[ReplayedWork]) -> list[bool]:
        """Each is one question to the store, until it does not answer."""
        return [self._records.success_of(_as_sent(work)) is not None for work in works]


def _as_sent(work: ReplayedWork) -> Work:
    """As the worker that got the message names it."""
    message = SimpleNamespace(
        headers={"id": "", KEY_HEADER: work.delivery_key, REPLAY_HEADER: work.replay_number},
        body=work.body,
        delivery_info={},
    )
    return Work.of(message)
