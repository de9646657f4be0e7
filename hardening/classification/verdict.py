"""What a classifier says of an error, and which rule said it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hardening.retries.policy import RetryPolicy

__all__ = ["Kind", "Verdict"]


class Kind(StrEnum):
    """Whether another try can help."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verdict on one error.

    `rule` names the rule that gave it. `code` is what the rule read from the error, such as "503" or
    "40P01", "" if it read nothing. `via` is the class of the error behind the given one that was
    judged, "" where that is the given one. `retry_after` are the seconds that the other side asked
    for. `dependency` tags what failed; `retry` is the rule's own retry policy.
    `weak`: a retry that its author asks for by hand overrules a permanent verdict of this rule, as he
    knows what he waits for.
    """

    kind: Kind
    rule: str
    code: str = ""
    via: str = ""
    retry_after: float | None = None
    dependency: str | None = None
    retry: RetryPolicy | None = None
    weak: bool = False
