"""EmailChannel: by Django's mail, with the project's EMAIL_ settings."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from hardening.alerts.notice import Notice

__all__ = ["EmailChannel"]

_TIMEOUT_SECONDS = 10


class EmailChannel:
    """One message for each notice, to all recipients."""

    def __init__(self, *, to: Sequence[str] = (), sender: str | None = None) -> None:
        """`to` defaults to ADMINS, `sender` to DEFAULT_FROM_EMAIL. Raises ValueError without a recipient."""
        if isinstance(to, str):
            to = (to,)
        self._to = [str(each) for each in to] or _admins()
        self._sender = sender
        if not self._to:
            raise ValueError('nobody to write to: give {"to": [...]} in OPTIONS, or set ADMINS')
        get_connection()  # Imports the backend now: a worker may fork while the thread of a channel imports.

    def send(self, notice: Notice) -> None:
        """Returns when the mail server has taken it. Waits 10 s at a time, or EMAIL_TIMEOUT."""
        timeout = getattr(settings, "EMAIL_TIMEOUT", None) or _TIMEOUT_SECONDS
        EmailMessage(
            notice.title,
            f"{notice.text}\n",
            self._sender,
            self._to,
            connection=get_connection(fail_silently=False, timeout=timeout),
            headers={"Auto-Submitted": "auto-generated", "X-Hardening-Notice": notice.id},
        ).send()


def _admins() -> list[str]:
    # Pairs of name and address, or, since Django 6.0, addresses.
    return [each if isinstance(each, str) else each[1] for each in settings.ADMINS]
