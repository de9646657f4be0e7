"""The alerts of one process: looks where it is its turn, writes down what it saw, and has it delivered.

Each condition has one document in the shared store, which says who looks, what is open and what is to be
told; whatever changes there is a swap, so that of all processes one looks and one delivers. Looks are in
the main loop, deliveries are not (see `outlet`). While the store does not answer nothing is raised and
nothing forgotten: a fact that still holds when it is back is raised then.

Dying at any point leaves claims, which run out. Between a delivery and the swap that strikes it out, about
two seconds, it leaves a notice that is told twice.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from random import random
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from celery import Celery
from django.db import connections

from hardening.conf import load_settings
from hardening.core.alerts import Condition, Fact
from hardening.core.connection import drop_connection
from hardening.core.duties import Duty
from hardening.core.redaction import project_redactor
from hardening.delayed.saying import Seldom
from hardening.store import StateStore, update
from hardening.stores.patient import PatientStore

from . import delivery, policy
from .book import Book
from .channel import channels_of
from .conditions import conditions_of
from .notice import Notice
from .outlet import Job, Outlet, Settled
from .rules import AlertRules
from .texts import clean

__all__ = ["ALERTS_DUTY", "Alerts", "Turn", "alerts_for"]

logger = logging.getLogger("hardening")

EVERY_SECONDS = 2.0
_TTL_SECONDS = 30 * 24 * 3600.0
_SLOW_SECONDS = 1.0


@dataclass(slots=True)
class Turn:
    """What a turn saw: conditions that could not be looked at, and deliveries that have ended."""

    unknown: dict[str, str] = field(default_factory=dict)
    settled: list[Settled] = field(default_factory=list)
    unanswered: bool = False
    """The shared store did not answer."""


class Alerts:
    """Of one app in one process; for its main loop."""

    def __init__(
        self,
        app: Celery,
        *,
        rules: AlertRules | None = None,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._rules = rules or load_settings()[0].alert_rules
        self._store = PatientStore(
            app, "alerts are not raised now, as the shared store does not answer", store=store, clock=clock
        )
        self._clock = clock
        self._me = uuid4().hex[:8]
        self._outlets = {rule.name: Outlet(rule, channel) for rule, channel in channels_of(self._rules)}
        self._next: dict[str, float] = {}
        self._unsettled: dict[str, list[Settled]] = defaultdict(list)
        self._complaints: dict[str, Seldom] = defaultdict(lambda: Seldom(logger))
        self._at_it = False

    def conditions(self) -> list[Condition]:
        """Those that are looked at."""
        return [each for each in conditions_of(self._app) if each.name not in self._rules.muted]

    @property
    def busy(self) -> bool:
        """Whether a channel is at work, or was and it is not written down."""
        return any(outlet.busy for outlet in self._outlets.values()) or any(self._unsettled.values())

    def turn(self) -> Turn:
        """Do what is due. Waits for the store and for looks, for no channel."""
        turn = Turn()
        if self._at_it:
            return turn  # On gevent a turn may begin while one waits for its store.
        self._at_it = True
        try:
            self._collect(turn)
            for condition in self.conditions():
                if self._clock() >= self._next.get(condition.name, 0.0) or self._unsettled[condition.name]:
                    self._attend(condition, turn)
            self._collect(turn)
        finally:
            self._at_it = False
        return turn

    def book(self, condition: Condition) -> Book:
        """What is known of a condition; an empty book where the store does not answer."""
        return self._store.ask(lambda store: Book.read(store.read(_key(condition)).value), Book())

    def close(self) -> None:
        """End the threads of the channels."""
        for outlet in self._outlets.values():
            outlet.close()

    def _collect(self, turn: Turn) -> None:
        for outlet in self._outlets.values():
            for settled in outlet.settled():
                turn.settled.append(settled)
                self._unsettled[settled.job.condition].append(settled)
                if settled.error:
                    self._complaints[outlet.rule.name].warn(
                        "an alert could not be told on the channel %r; it is tried again: %s",
                        outlet.rule.name,
                        settled.error,
                    )

    def _attend(self, condition: Condition, turn: Turn) -> None:
        terms = self._terms(condition)
        mine = self._change(condition, turn, partial(policy.claim_look, terms=terms, me=self._me))
        if not mine:
            return
        try:
            facts = self._look(condition)
        # A condition may be anyone's: it says that it cannot know, and the others have their turn.
        except Exception as exc:
            why = turn.unknown[condition.name] = project_redactor().text(f"{type(exc).__name__}: {exc}")[:500]
            self._complaints[condition.name].warn(
                "the condition %r could not be looked at; what is open stays open: %s", condition.name, why
            )
            self._change(condition, turn, partial(policy.nothing_known, terms=terms, me=self._me))
        else:
            self._change(condition, turn, partial(policy.facts_seen, terms=terms, facts=facts, me=self._me))

    def _look(self, condition: Condition) -> list[Fact]:
        began = self._clock()
        try:
            return clean(condition.look(), project_redactor())
        finally:
            for used in connections.all(initialized_only=True):
                drop_connection(used.alias)
            took = self._clock() - began
            if took >= _SLOW_SECONDS:
                self._complaints[f"{condition.name} slow"].warn(
                    "the condition %r kept the main loop waiting for %.1f s", condition.name, took
                )

    def _change(self, condition: Condition, turn: Turn, step: Callable[..., Any]) -> Any:
        """Settle, do the step, and take what is due, as one swap; what the step answers."""
        settled = self._unsettled[condition.name]
        room = {name: outlet.room() for name, outlet in self._outlets.items()}

        def change(document: dict[str, Any] | None, now: float) -> tuple[dict[str, Any] | None, Any]:
            book = Book.read(document)
            for each in settled:
                delivery.settle(
                    book, each.job.number, each.channel, delivered=not each.error, now=now, me=self._me
                )
            lost = delivery.give_up(book, now=now)
            answer = step(book, now=now)
            tasks = delivery.take(book, room, now=now, me=self._me)
            rest = delivery.next_moment(book, now=now) - now
            # Nothing to keep is no document: a book that was never written is as good.
            return book.as_document() if document or book != Book() else None, (answer, tasks, lost, rest)

        found = self._store.ask(
            lambda store: update(store, _key(condition), change, ttl_seconds=_TTL_SECONDS), None
        )
        if found is None:
            turn.unanswered = True
            return None
        answer, tasks, lost, rest = found
        self._unsettled[condition.name] = []
        # The processes of a fleet do not all ask at one moment.
        self._next[condition.name] = self._clock() + min(rest, condition.every_seconds) + random() * 0.5
        for channel, subject in lost:
            logger.error("the channel %r was never told of %r: %s", channel, condition.name, subject)
        for task in tasks:
            self._outlets[task.channel].put(
                Job(number=task.notice.number, condition=condition.name, notice=self._notice(condition, task))
            )
        return answer

    def _terms(self, condition: Condition) -> policy.Terms:
        return policy.Terms(
            every=condition.every_seconds,
            hold_looks=condition.hold_looks,
            hold=condition.hold_seconds,
            gone=condition.gone_seconds,
            remind_every=self._rules.remind_every,
            channels=tuple(
                name
                for name, outlet in self._outlets.items()
                if condition.severity >= outlet.rule.min_severity
            ),
        )

    def _notice(self, condition: Condition, task: delivery.Task) -> Notice:
        incident = task.incident
        name = f"{condition.name}\n{task.subject}\n{incident.first!r}"
        digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:16]
        is_path = incident.link.startswith("/")
        return Notice(
            id=f"{digest}-{task.notice.number}",
            incident=digest,
            news=task.notice.news,
            condition=condition.name,
            severity=condition.severity,
            subject=task.subject,
            summary=incident.summary,
            detail=incident.detail,
            link=f"{self._rules.base_url}{incident.link}" if is_path else incident.link,
            opened_at=incident.opened,
            at=task.notice.at,
            app=str(self._app.main or "celery"),
        )


def _key(condition: Condition) -> str:
    return f"alerts:{condition.name}"


_all: WeakKeyDictionary[Celery, Alerts] = WeakKeyDictionary()


def alerts_for(app: Celery) -> Alerts:
    """Those of an app in this process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = Alerts(app)
    return found


def _run(app: Celery) -> None:
    alerts_for(app).turn()


os.register_at_fork(after_in_child=_all.clear)  # Its threads stayed behind, and its claims are the parent's.

ALERTS_DUTY = Duty(name="alerts", every_seconds=EVERY_SECONDS, run=_run)
