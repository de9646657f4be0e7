"""The words for a verdict and the rule that gave it. Pure."""

from __future__ import annotations

__all__ = ["UNKNOWN", "judgement"]

UNKNOWN = "unknown"
"""The verdict on an error that no rule knows."""

# What the classifier names as the rule where none knows the error.
_NO_RULE = "none"


def judgement(verdict: str, rule: str) -> str:
    """`transient by http.status`; empty where nobody judged."""
    return f"{verdict} by {rule}" if verdict and rule not in ("", _NO_RULE) else verdict
