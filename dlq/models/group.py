"""Groups of letters with one cause, and what is counted of each.

A letter has its fingerprint from its capture on, and its group as soon as it was counted: in one transaction
with the counts, so that each letter is counted once whoever dies. Nothing here counts by reading letters.
"""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..groups.states import GroupState
from .letter import FINGERPRINT_LENGTH, NAME_LENGTH, DeadLetter
from .places import HereManager

__all__ = ["FACETS", "GroupFacet", "GroupHour", "LetterGroup"]

FACETS = ("task_name", "error_class", "queue", "release", "worker")
"""Columns of a letter whose values are counted for each group."""

_STATE_LABELS = [
    (GroupState.OPEN.value, _("open")),
    (GroupState.ACKNOWLEDGED.value, _("acknowledged")),
    (GroupState.SNOOZED.value, _("snoozed")),
    (GroupState.RESOLVED.value, _("resolved")),
    (GroupState.REGRESSED.value, _("regressed")),
]


class LetterGroup(models.Model):
    """The letters of one fingerprint, and what people said of them."""

    fingerprint = models.CharField(_("fingerprint"), max_length=FINGERPRINT_LENGTH, primary_key=True)
    task_name = models.CharField(_("task"), max_length=NAME_LENGTH)
    error_class = models.CharField(_("error class"), max_length=NAME_LENGTH, blank=True)
    reason = models.CharField(_("reason"), max_length=64)
    title = models.CharField(
        _("title"), max_length=NAME_LENGTH, blank=True, help_text=_("The message without what varies.")
    )
    place = models.CharField(
        _("place"), max_length=NAME_LENGTH, blank=True, help_text=_("The innermost frame of the project.")
    )

    letters = models.PositiveBigIntegerField(_("letters"), default=0)
    first_seen_at = models.DateTimeField(_("first seen"))
    last_seen_at = models.DateTimeField(_("last seen"))
    sample = models.ForeignKey(
        DeadLetter,
        verbose_name=_("sample letter"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="+",
    )

    state = models.CharField(_("state"), max_length=16, choices=_STATE_LABELS, default=GroupState.OPEN.value)
    state_since = models.DateTimeField(_("state since"))
    state_by = models.CharField(_("state set by"), max_length=NAME_LENGTH, blank=True)
    owner = models.CharField(_("owner"), max_length=NAME_LENGTH, blank=True)
    note = models.TextField(_("note"), blank=True)
    snoozed_until = models.DateTimeField(_("snoozed until"), null=True, blank=True)
    snoozed_release = models.CharField(_("snoozed until release"), max_length=NAME_LENGTH, blank=True)
    resolved_release = models.CharField(
        _("resolved in release"),
        max_length=NAME_LENGTH,
        blank=True,
        help_text=_("Letters of other releases do not reopen the group before this one has run."),
    )
    replay_on_release = models.BooleanField(
        _("replay when that release runs"),
        default=False,
        help_text=_("The open letters of the group are replayed by themselves then."),
    )

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("group of dead letters")
        verbose_name_plural = _("groups of dead letters")
        ordering = ("-last_seen_at", "fingerprint")
        constraints = (
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in GroupState]), name="dlq_group_state"
            ),
        )
        indexes = (
            models.Index(fields=("last_seen_at",), name="dlq_group_last"),
            models.Index(fields=("first_seen_at",), name="dlq_group_first"),
            models.Index(fields=("letters",), name="dlq_group_letters"),
            models.Index(fields=("state", "last_seen_at"), name="dlq_group_state_last"),
            models.Index(fields=("task_name", "last_seen_at"), name="dlq_group_task_last"),
        )

    def __str__(self) -> str:
        return f"{self.task_name}: {self.error_class.rpartition('.')[2] or self.reason}"


class GroupHour(models.Model):
    """How many letters of a group failed in one hour (UTC)."""

    group = models.ForeignKey(
        LetterGroup, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="hours"
    )
    hour = models.DateTimeField(_("hour"))
    letters = models.PositiveBigIntegerField(_("letters"), default=0)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("group", "hour"), name="dlq_group_hour_once"),)
        indexes = (models.Index(fields=("hour",), name="dlq_group_hour"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.hour:%Y-%m-%d %H}: {self.letters}"


class GroupFacet(models.Model):
    """How many letters of a group had one value of one of FACETS."""

    group = models.ForeignKey(
        LetterGroup, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="facets"
    )
    facet = models.CharField(_("facet"), max_length=16)
    value = models.CharField(_("value"), max_length=NAME_LENGTH, blank=True)
    letters = models.PositiveBigIntegerField(_("letters"), default=0)
    last_seen_at = models.DateTimeField(_("last seen"))

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=("group", "facet", "value"), name="dlq_group_facet_once"),
        )
        indexes = (models.Index(fields=("facet", "value"), name="dlq_group_facet"),)

    def __str__(self) -> str:
        return f"{self.group_id} {self.facet}={self.value}: {self.letters}"
