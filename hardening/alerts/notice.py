"""A notice: what a channel is given to tell people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from hardening.core.alerts import Severity

__all__ = ["News", "Notice"]


class News(StrEnum):
    """What there is to be told of an incident."""

    OPENED = "opened"
    STILL = "still"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notification of one incident, free of secrets.

    `id` is the same when it is delivered again, `incident` is the same in all notices of an incident.
    """

    id: str
    incident: str
    news: News
    condition: str
    severity: Severity
    subject: str
    summary: str
    detail: str
    link: str
    opened_at: float
    at: float
    """Both in seconds since 1970."""

    app: str

    @property
    def title(self) -> str:
        """One line."""
        return f"[{self.app}] {self.news} {self.severity.name.lower()}: {self.summary}"

    @property
    def text(self) -> str:
        """What stands below the title."""
        lines = [
            self.detail,
            f"{self.condition}: {self.subject}",
            f"open since {_time(self.opened_at)}, {self.news} at {_time(self.at)}",
            self.link,
        ]
        return "\n".join(line for line in lines if line)

    def as_dict(self) -> dict[str, Any]:
        """Plain form for JSON; times in ISO 8601."""
        return {
            "id": self.id,
            "incident": self.incident,
            "state": self.news.value,
            "condition": self.condition,
            "severity": self.severity.name.lower(),
            "subject": self.subject,
            "summary": self.summary,
            "detail": self.detail,
            "link": self.link,
            "opened_at": _time(self.opened_at),
            "at": _time(self.at),
            "app": self.app,
        }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
