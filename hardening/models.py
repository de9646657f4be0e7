"""The table of shared state, used where the broker is no Redis; see `hardening.stores.database`."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .delayed.models import DelayedTask
from .revoked.models import Revoked

__all__ = ["KEY_LENGTH", "DelayedTask", "Revoked", "State"]

KEY_LENGTH = 200


class State(models.Model):
    """One document of shared state. A row whose time is over counts as absent."""

    key = models.CharField(_("key"), max_length=KEY_LENGTH, primary_key=True)
    value = models.TextField(_("value"), help_text=_("A JSON object."))
    version = models.BigIntegerField(
        _("version"), help_text=_("Random at each change: who changes names the one that was read.")
    )
    # A number and no date: no time zone of Django, the session or the server can move it.
    expires_at = models.FloatField(_("expires"), help_text=_("Seconds since 1970, by the database's clock."))

    class Meta:
        verbose_name = _("shared state")
        verbose_name_plural = _("outages and retry budgets")  # What the admin shows of it.
        default_permissions = ("view", "change")
        indexes = (models.Index(fields=("expires_at",), name="hardening_state_expires"),)

    def __str__(self) -> str:
        return self.key
