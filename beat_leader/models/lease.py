"""The row of a leader lock that is kept in a database."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

__all__ = ["Lease"]


class Lease(models.Model):
    """One row for each lock, made when it is first won. It stays: its epoch must never go back."""

    name = models.CharField(_("name"), max_length=64, primary_key=True)
    holder = models.CharField(_("holder"), max_length=255, blank=True)
    epoch = models.BigIntegerField(_("epoch"))
    ends = models.FloatField(
        _("ends"), help_text=_("Seconds since 1970 by the database's clock; the lease is over then.")
    )

    class Meta:
        verbose_name = _("lease of the leading Beat")
        verbose_name_plural = _("leases of the leading Beat")
        default_permissions = ()
        constraints = [
            models.CheckConstraint(condition=models.Q(epoch__gte=1), name="beat_leader_lease_epoch"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.holder or '-'} ({self.epoch})"
