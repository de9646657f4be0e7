"""What one schedule asks for, as set in the admin; see `beat_leader.entry.Policy`. NULL: not given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator, URLValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..conf import beat_settings
from ..entry import Misfire
from .names import KEY_LENGTH, key_of
from .places import HereManager

__all__ = ["NAME_LENGTH", "SchedulePolicy"]

NAME_LENGTH = 200
"""As long as django-celery-beat's names."""

_MISFIRES = [
    (Misfire.SKIP.value, _("skip")),
    (Misfire.LATEST.value, _("send the latest")),
    (Misfire.ALL.value, _("send all, up to a number")),
]
_NOT_NEGATIVE = ("misfire_seconds", "grace_seconds")
_POSITIVE = ("most", "overlap_seconds")


class SchedulePolicy(models.Model):
    """The policy of the schedule of this name. It goes before BEAT_LEADER["SCHEDULES"]."""

    schedule = models.CharField(_("schedule"), max_length=NAME_LENGTH, help_text=_("Its name."))
    # Two names that differ in case only are two schedules, which MariaDB would not let be.
    key = models.CharField(_("digest"), max_length=KEY_LENGTH, unique=True, editable=False)
    misfire = models.CharField(  # noqa: DJ001 - not given
        _("late due times"),
        max_length=16,
        null=True,
        blank=True,
        choices=_MISFIRES,
        help_text=_("What becomes of those that no Beat could send in time."),
    )
    most = models.PositiveIntegerField(
        _("at most"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("How many late due times are sent if all are."),
    )
    misfire_seconds = models.FloatField(
        _("late after"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=_("Seconds. A due time that is less late is sent in any case."),
    )
    grace_seconds = models.FloatField(
        _("grace time"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=_("Seconds. A due time that is later is skipped in any case."),
    )
    overlap = models.BooleanField(
        _("may overlap"),
        null=True,
        blank=True,
        help_text=_("No: a due time is skipped while the task of the one before has not ended."),
    )
    overlap_seconds = models.FloatField(
        _("holds the next one back for"),
        null=True,
        blank=True,
        help_text=_("Seconds, at most, if nothing is heard of its task."),
    )
    expires = models.BooleanField(
        _("messages expire"),
        null=True,
        blank=True,
        help_text=_("At the next due time, unless the schedule says when."),
    )
    ping = models.CharField(  # noqa: DJ001 - not given
        _("ping URL"),
        max_length=500,
        null=True,
        blank=True,
        validators=[URLValidator(schemes=["http", "https"])],
        help_text=_("Of a check compatible with Healthchecks. Who knows it can feign the task's success."),
    )

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("policy of a schedule")
        verbose_name_plural = _("policies of schedules")
        ordering = ("schedule",)
        constraints = (
            models.CheckConstraint(condition=~Q(schedule=""), name="beat_leader_policy_schedule"),
            models.CheckConstraint(condition=~Q(key=""), name="beat_leader_policy_key"),
            models.CheckConstraint(
                condition=Q(misfire__isnull=True) | Q(misfire__in=[each.value for each in Misfire]),
                name="beat_leader_policy_misfire",
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gte": 0}),
                    name=f"beat_leader_policy_{name}",
                )
                for name in _NOT_NEGATIVE
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gt": 0}),
                    name=f"beat_leader_policy_{name}",
                )
                for name in _POSITIVE
            ),
        )

    def __str__(self) -> str:
        return self.schedule

    def save(self, *args: Any, using: str | None = None, **kwargs: Any) -> None:
        """Where the tables of beat_leader are."""
        self.key = key_of(self.schedule)
        changed: Iterable[str] | None = kwargs.get("update_fields")
        if changed is not None and "schedule" in changed:
            kwargs["update_fields"] = {*changed, "key"}
        super().save(*args, using=using or beat_settings().database, **kwargs)

    def clean(self) -> None:
        """One policy for each schedule; empty choices are as not given."""
        super().clean()
        self.misfire, self.ping = self.misfire or None, self.ping or None
        if self.overlap_seconds is not None and self.overlap_seconds <= 0:
            raise ValidationError({"overlap_seconds": _("Ensure this value is greater than 0.")})
        self.key = key_of(self.schedule)
        others = type(self).objects.filter(key=self.key).exclude(pk=self.pk)
        if others.exists():
            raise ValidationError({"schedule": _("This schedule has a policy already.")})
