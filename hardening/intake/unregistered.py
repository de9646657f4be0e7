"""Offering: a message of a task that this worker does not know goes back to its queue, later, a few times.

During a rolling deploy the new task is known to some workers and not to others. Whether any worker knows it
cannot be asked; so the message is parked, as a delayed one is, and comes back to the queue when the time is
over, for whoever takes it first. A header counts. After the last time it is kept as a letter.

Parked first and acknowledged afterwards; dying in between, the message comes back with the same count, and
is found parked under the same id. A store that cannot take it: the letter, at once.
"""

from __future__ import annotations

import logging
import time
from hashlib import sha256
from typing import Any

from hardening.conf import load_settings
from hardening.core.identity import OFFERS_HEADER
from hardening.delayed.entry import Fate, delayed_id
from hardening.delayed.origin import origin_of
from hardening.delayed.step import TRANSPORTS, body_of, entry_for
from hardening.delayed.store import DelayedStore, chosen_delayed_store
from hardening.effective import transport_of

from .rules import IntakeRules

__all__ = ["Offering", "offers_of"]

logger = logging.getLogger("hardening")


class Offering:
    """The offers of one worker."""

    def __init__(self, consumer: Any, rules: IntakeRules) -> None:
        self._consumer = consumer
        self._rules = rules
        self._store: DelayedStore | None = None

    def takes(self, message: Any) -> bool:
        """Park and acknowledge a message, unless it was offered often enough, or cannot be parked."""
        rules, headers = self._rules, message.headers
        if not rules.offers or not headers.get("task"):  # Of protocol 1: its headers are not its task's.
            return False
        offers = offers_of(headers)
        if offers >= rules.offers or transport_of(self._consumer.app) not in TRANSPORTS:
            return False
        try:
            is_parked = self._park(message, offers + 1)
        # The store, or the broker where it was asked for the queue: the letter is kept instead.
        except Exception as exc:
            logger.warning(
                "task %s[%s] is not known here and cannot be offered again: %s",
                headers["task"],
                headers["id"],
                exc,
                extra={"task_id": headers["id"], "task_name": headers["task"]},
            )
            return False
        if is_parked:
            message.ack_log_error(logger, self._consumer.connection_errors)
        return is_parked

    def _park(self, message: Any, number: int) -> bool:
        origin = origin_of(message, self._consumer)
        if origin is None:
            return False
        headers, body = message.headers, body_of(message)
        where = origin.list_key or origin.queue
        own_id = delayed_id(headers, task_id=headers["id"], queue=where, body=body)
        own_id = sha256(f"{own_id}:{number}".encode()).hexdigest()[:32]
        before = headers.get(OFFERS_HEADER)
        # The envelope of a list refers to the same headers.
        headers[OFFERS_HEADER] = f"{number} {headers['id']}"
        try:
            due = time.time() + self._rules.offer_after
            fate = self._stored().park(entry_for(message, headers["task"], due, own_id, origin, body))
        finally:
            if before is None:
                del headers[OFFERS_HEADER]
            else:
                headers[OFFERS_HEADER] = before
        if fate is Fate.DUE:  # Its clock and ours are too far apart for such a wait.
            return False
        logger.warning(
            "task %s[%s] is not known here; it is offered again in %g s (%d of %d)",
            headers["task"],
            headers["id"],
            self._rules.offer_after,
            number,
            self._rules.offers,
            extra={"task_id": headers["id"], "task_name": headers["task"], "offer": number},
        )
        return True

    def _stored(self) -> DelayedStore:
        if self._store is None:
            app = self._consumer.app
            store = chosen_delayed_store(app, load_settings()[0].delayed_rules)
            store.begin()
            self._store = store
        return self._store


def offers_of(headers: Any) -> int:
    """How often a message was offered; 0 where the header says nothing about this one."""
    number, _, owner = str(headers.get(OFFERS_HEADER) or "").partition(" ")
    return int(number) if owner == headers.get("id") and number.isascii() and number.isdigit() else 0
