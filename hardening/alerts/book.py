"""The book of one condition: its incidents, and what is still to be told of them, as one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .notice import News

__all__ = ["Book", "Delivery", "Incident", "Pending", "Phase"]

_VERSION = 1


class Phase(StrEnum):
    """Of an incident. PENDING: its fact has not held for long enough; RESOLVED: only its notices remain."""

    PENDING = "pending"
    OPEN = "open"
    RESOLVED = "resolved"


@dataclass(slots=True)
class Delivery:
    """A notice on its way to one channel: `by` delivers it until `until`; else it is due at `due`."""

    tries: int = 0
    due: float = 0.0
    by: str = ""
    until: float = 0.0


@dataclass(slots=True)
class Pending:
    """A notice, and the channels that have not taken it."""

    number: int
    news: News
    at: float
    to: dict[str, Delivery]


@dataclass(slots=True, kw_only=True)
class Incident:
    """What is known of one subject. `first` is when its fact was seen first, `absent` when missed first."""

    summary: str = ""
    detail: str = ""
    link: str = ""
    phase: Phase = Phase.PENDING
    first: float = 0.0
    looks: int = 0
    opened: float = 0.0
    absent: float | None = None
    told: float = 0.0
    notices: list[Pending] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Book:
    """`by` looks until `until`; else the next look is due at `due`. `count` numbers the notices."""

    due: float = 0.0
    by: str = ""
    until: float = 0.0
    count: int = 0
    incidents: dict[str, Incident] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> Book:
        """The book of a document; an empty one for what is none of ours."""
        try:
            return _read(document or {})
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls()

    def as_document(self) -> dict[str, Any]:
        """As the store keeps it."""
        document = {"version": _VERSION, **asdict(self)}
        for incident in document["incidents"].values():
            for notice in incident["notices"]:
                # Without their names: they are most of a full book, and a document is bounded.
                notice["to"] = {channel: list(each.values()) for channel, each in notice["to"].items()}
        return document


def _read(document: Mapping[str, Any]) -> Book:
    values = dict(document)
    if values.pop("version", _VERSION) != _VERSION:
        return Book()
    incidents = {subject: _incident(each) for subject, each in values.pop("incidents", {}).items()}
    return Book(**values, incidents=incidents)


def _incident(values: Mapping[str, Any]) -> Incident:
    notices = [
        Pending(
            number=each["number"],
            news=News(each["news"]),
            at=each["at"],
            to={channel: Delivery(*delivery) for channel, delivery in each["to"].items()},
        )
        for each in values["notices"]
    ]
    return Incident(**{**values, "phase": Phase(values["phase"]), "notices": notices})
