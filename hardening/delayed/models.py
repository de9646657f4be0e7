"""The table of delayed tasks, used where the broker is no Redis; see `hardening.delayed.stores.database`."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

__all__ = ["DelayedTask"]

_LENGTH = 200


class DelayedTask(models.Model):
    """A message that waits until it is due, or the memory of one that went; see `hardening.delayed`."""

    PARKED = "parked"
    RELEASED = "released"
    CANCELLED = "cancelled"

    number = models.BigAutoField(_("order of parking"), primary_key=True)
    key = models.CharField(_("id"), max_length=32, unique=True)
    state = models.CharField(_("state"), max_length=10)
    task_id = models.CharField(_("task id"), max_length=_LENGTH, db_index=True)
    task = models.CharField(_("task"), max_length=_LENGTH)
    queue = models.CharField(_("queue"), max_length=_LENGTH)
    list_key = models.CharField(_("list in Redis"), max_length=255)
    attempt = models.IntegerField(_("attempt"))
    # Numbers and no dates: no time zone of Django, the session or the server can move them.
    due_at = models.FloatField(_("due"), help_text=_("Seconds since 1970."))
    next_at = models.FloatField(
        _("next turn"), help_text=_("When it is sent: due, or later after a refusal by the broker.")
    )
    parked_at = models.FloatField(_("parked"), help_text=_("Seconds since 1970, by the database's clock."))
    claimed_until = models.FloatField(_("claimed until"), help_text=_("Until then one worker sends it."))
    claim = models.BigIntegerField(_("claim"))
    ended_at = models.FloatField(_("released or cancelled"))
    ended_by = models.CharField(_("cancelled by"), max_length=_LENGTH)
    message = models.TextField(_("message"))

    class Meta:
        app_label = "hardening"
        verbose_name = _("delayed task")
        verbose_name_plural = _("delayed tasks")
        default_permissions = ("view", "change")
        indexes = (
            models.Index(fields=("state", "next_at", "number"), name="hardening_delayed_next"),
            models.Index(fields=("state", "ended_at"), name="hardening_delayed_ended"),
        )

    def __str__(self) -> str:
        return f"{self.task}[{self.task_id}]"
