"""The tables of the tick store that is kept in a database; see `beat_leader.ticks` for what they mean.

Times are milliseconds since 1970 in numbers: no time zone of Django, the session or the server can move them.
"""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from ..ticks import Outcome, State
from .names import KEY_LENGTH
from .places import HereManager

__all__ = ["CursorRow", "Fence", "TickRow"]

_STATES = [
    (State.DUE.value, _("to be sent")),
    (State.SENT.value, _("sent")),
    (State.SKIPPED.value, _("skipped")),
    (State.MISSED.value, _("missed")),
]
_OUTCOMES = [
    (Outcome.UNKNOWN.value, _("not known")),
    (Outcome.STARTED.value, _("started")),
    (Outcome.SUCCEEDED.value, _("succeeded")),
    (Outcome.DEAD.value, _("dead letter")),
    (Outcome.CANCELLED.value, _("cancelled")),
]
_OF_NAME = _("Of the schedule's name: databases differ in which names are equal.")


class Fence(models.Model):
    """One row: the highest epoch that was seen. Who writes ticks changes it first, and so waits its turn."""

    id = models.SmallIntegerField(_("id"), primary_key=True)
    epoch = models.BigIntegerField(_("epoch"))

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("newest epoch of the tick store")
        verbose_name_plural = _("newest epochs of the tick store")
        default_permissions = ()
        constraints = (
            models.CheckConstraint(condition=Q(id=1), name="beat_leader_fence_one"),
            models.CheckConstraint(condition=Q(epoch__gte=1), name="beat_leader_fence_epoch"),
        )

    def __str__(self) -> str:
        return str(self.epoch)


class CursorRow(models.Model):
    """How far one schedule is."""

    key = models.CharField(_("digest"), max_length=KEY_LENGTH, primary_key=True, help_text=_OF_NAME)
    schedule = models.TextField(_("schedule"))
    definition = models.TextField(_("definition"), help_text=_("A digest of when it is due."))
    anchor_ms = models.BigIntegerField(_("counted from"))
    decided_ms = models.BigIntegerField(_("decided up to"))

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("cursor of a schedule")
        verbose_name_plural = _("cursors of schedules")
        default_permissions = ()

    def __str__(self) -> str:
        return self.schedule


class TickRow(models.Model):
    """One due time of one schedule, and what became of it."""

    task_id = models.UUIDField(_("task id"), primary_key=True, editable=False)
    key = models.CharField(_("digest"), max_length=KEY_LENGTH, help_text=_OF_NAME)
    schedule = models.TextField(_("schedule"))
    due_ms = models.BigIntegerField(_("due"))
    state = models.CharField(_("state"), max_length=16, choices=_STATES)
    why = models.TextField(_("why"), blank=True)
    epoch = models.BigIntegerField(_("epoch"))
    decided_ms = models.BigIntegerField(_("decided"))
    sent_ms = models.BigIntegerField(_("sent"), null=True, blank=True)
    outcome = models.CharField(
        _("outcome"), max_length=16, blank=True, choices=_OUTCOMES, default=Outcome.UNKNOWN.value
    )
    started_ms = models.BigIntegerField(_("started"), null=True, blank=True)
    ended_ms = models.BigIntegerField(_("ended"), null=True, blank=True)
    detail = models.TextField(_("details of the outcome"), blank=True)
    first_ms = models.BigIntegerField(_("first due time that it stands for"), null=True, blank=True)
    count = models.PositiveIntegerField(_("due times that it stands for"), default=1)
    latest_of = models.CharField(
        _("latest of"),
        max_length=KEY_LENGTH,
        null=True,
        blank=True,
        unique=True,
        editable=False,
        help_text=_("The digest again in the row of a schedule's latest due time, else nothing."),
    )

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("due time")
        verbose_name_plural = _("due times")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=("key", "due_ms"), name="beat_leader_tick_once"),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in State]), name="beat_leader_tick_state"
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=[outcome.value for outcome in Outcome]),
                name="beat_leader_tick_outcome",
            ),
            models.CheckConstraint(
                condition=Q(state=State.SENT.value, sent_ms__isnull=False)
                | (~Q(state=State.SENT.value) & Q(sent_ms__isnull=True)),
                name="beat_leader_tick_sent",
            ),
            models.CheckConstraint(
                condition=Q(first_ms__isnull=True)
                | Q(state=State.SKIPPED.value, first_ms__lte=F("due_ms"), count__gte=1),
                name="beat_leader_tick_first",
            ),
            models.CheckConstraint(
                condition=Q(latest_of__isnull=True) | Q(latest_of=F("key")), name="beat_leader_tick_latest"
            ),
            models.CheckConstraint(condition=Q(epoch__gte=1), name="beat_leader_tick_epoch"),
            models.CheckConstraint(condition=Q(count__gte=1), name="beat_leader_tick_count"),
        )
        indexes = (
            # Unfinished and late ones, and the counts.
            models.Index(fields=("state", "due_ms"), name="beat_leader_tick_state_due"),
            # The history of all schedules, and what is to be pruned.
            models.Index(fields=("due_ms", "key"), name="beat_leader_tick_due"),
        )

    def __str__(self) -> str:
        return f"{self.schedule} {self.due_ms}"
