"""The tables of the register that is kept in a database; see `beat_leader.register` for what they mean.

Moments are seconds since 1970 by the database's clock.
"""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .places import HereManager

__all__ = ["HOLDER_LENGTH", "BeatSign", "BeatTerm", "Refusal"]

HOLDER_LENGTH = 255


class BeatSign(models.Model):
    """The latest sign of life of one Beat."""

    holder = models.CharField(_("Beat"), max_length=HOLDER_LENGTH, primary_key=True)
    at = models.FloatField(_("last sign of life"))
    told = models.TextField(_("what it told"), help_text=_("A JSON object."))

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("sign of life of a Beat")
        verbose_name_plural = _("signs of life of Beats")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.holder


class BeatTerm(models.Model):
    """One leadership, from its election to its end."""

    epoch = models.BigIntegerField(_("epoch"), primary_key=True)
    holder = models.CharField(_("Beat"), max_length=HOLDER_LENGTH)
    began = models.FloatField(_("began"))
    first_sent = models.FloatField(_("first message sent"), null=True, blank=True)
    ended = models.FloatField(_("ended"), null=True, blank=True)
    end = models.CharField(_("how it ended"), max_length=64, blank=True)
    asked_by = models.CharField(_("asked to resign by"), max_length=HOLDER_LENGTH, blank=True)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("term of a leading Beat")
        verbose_name_plural = _("terms of leading Beats")
        default_permissions = ("view",)
        permissions = (("resign_leader", _("Can make the leading Beat resign")),)
        constraints = (
            models.CheckConstraint(condition=Q(epoch__gte=1), name="beat_leader_term_epoch"),
            models.CheckConstraint(condition=Q(ended__isnull=False) | Q(end=""), name="beat_leader_term_end"),
        )

    def __str__(self) -> str:
        return f"{self.epoch}: {self.holder}"


class Refusal(models.Model):
    """A write of a Beat with an old epoch that the tick store refused."""

    id = models.BigAutoField(_("id"), primary_key=True)
    at = models.FloatField(_("when"))
    epoch = models.BigIntegerField(_("epoch"))
    holder = models.CharField(_("Beat"), max_length=HOLDER_LENGTH)
    what = models.TextField(_("what it tried"))

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("refused write of a Beat")
        verbose_name_plural = _("refused writes of Beats")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.epoch}: {self.holder}"
