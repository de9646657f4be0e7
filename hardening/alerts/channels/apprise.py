"""AppriseChannel: the services that Apprise knows, some hundred. Needs the extra celery-hardening[alerts]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardening.alerts.notice import News, Notice
from hardening.core.alerts import Severity
from hardening.core.errors import HardeningError

from .webhook import NotDelivered

__all__ = ["AppriseChannel", "AppriseMissing"]


class AppriseMissing(HardeningError):
    """The package is not installed."""


class AppriseChannel:
    """One notification for each notice, to all URLs. One that fails at some of them is sent again to all."""

    def __init__(self, *, urls: Sequence[str]) -> None:
        """Raises AppriseMissing, or ValueError for a URL that Apprise does not know."""
        # Late, as few projects have it, and all of it now: a worker may fork while the thread of a channel
        # imports.
        try:
            from apprise import Apprise
        except ImportError:
            raise AppriseMissing("apprise is not installed: pip install 'celery-hardening[alerts]'") from None
        self._apprise: Any = Apprise()
        for number, url in enumerate([urls] if isinstance(urls, str) else urls, 1):
            if not self._apprise.add(url):
                raise ValueError(f"Apprise does not understand the URL number {number}")
        if not len(self._apprise):
            raise ValueError('no URL: give {"urls": [...]} in OPTIONS')

    def send(self, notice: Notice) -> None:
        """Raises NotDelivered unless all services took it."""
        if not self._apprise.notify(body=notice.text, title=notice.title, notify_type=_kind(notice)):
            raise NotDelivered("at least one service of Apprise did not take it; its own log says which")


def _kind(notice: Notice) -> str:
    if notice.news is News.RESOLVED:
        return "success"
    if notice.severity >= Severity.ERROR:
        return "failure"
    return "warning" if notice.severity >= Severity.WARNING else "info"
