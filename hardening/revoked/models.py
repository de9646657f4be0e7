"""The table of revokes, used where the broker is no Redis; see `hardening.revoked.stores.database`."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

__all__ = ["Revoked"]


class Revoked(models.Model):
    """The last word on one revoke. A row whose time is over counts as absent."""

    # A digest: no two are equal to a database that ignores case or blanks.
    key = models.CharField(_("key"), max_length=64, primary_key=True)
    revoke = models.TextField(_("revoke"), help_text=_("A task id, or a stamp, as JSON."))
    forgotten = models.BooleanField(_("forgotten"), help_text=_("Taken back by an operator."))
    # Numbers and no dates: no time zone of Django, the session or the server can move them.
    at = models.FloatField(_("at"), help_text=_("Seconds since 1970, by the database's clock."))
    until = models.FloatField(_("until"), help_text=_("Seconds since 1970, by the database's clock."))

    class Meta:
        verbose_name = _("revoked task")
        verbose_name_plural = _("revoked tasks")
        default_permissions = ("view", "change")
        indexes = (
            models.Index(fields=("at",), name="hardening_revoked_at"),
            models.Index(fields=("until",), name="hardening_revoked_until"),
        )

    def __str__(self) -> str:
        return self.revoke
