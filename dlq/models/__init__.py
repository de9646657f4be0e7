"""The tables of dlq: letters, their groups, and the operations that act on many of them."""

from __future__ import annotations

from .group import GroupFacet, GroupHour, LetterGroup
from .letter import NAME_LENGTH, VERDICT_LENGTH, Attempt, DeadLetter, DeadLetterQuerySet
from .operation import Operation, OperationEvent, OperationItem, OperationMessage, SendingPace
from .upkeep import SeenRelease, Turn

__all__ = [
    "NAME_LENGTH",
    "VERDICT_LENGTH",
    "Attempt",
    "DeadLetter",
    "DeadLetterQuerySet",
    "GroupFacet",
    "GroupHour",
    "LetterGroup",
    "Operation",
    "OperationEvent",
    "OperationItem",
    "OperationMessage",
    "SeenRelease",
    "SendingPace",
    "Turn",
]
