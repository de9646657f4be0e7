"""LogChannel: the log of the process that tells."""

from __future__ import annotations

import logging

from hardening.alerts.notice import News, Notice
from hardening.core.alerts import Severity

__all__ = ["LogChannel"]

_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
    Severity.CRITICAL: logging.CRITICAL,
}


class LogChannel:
    """Logs to "hardening.alerts" at the level of the severity; what is resolved at INFO."""

    instant = True

    def __init__(self, *, logger: str = "hardening.alerts") -> None:
        self._logger = logging.getLogger(logger)

    def send(self, notice: Notice) -> None:
        """One record, with the whole notice as `alert` for handlers that understand it."""
        level = logging.INFO if notice.news is News.RESOLVED else _LEVELS[notice.severity]
        detail = " | ".join((notice.detail or notice.subject).splitlines())
        self._logger.log(level, "%s (%s)", notice.title, detail, extra={"alert": notice.as_dict()})
