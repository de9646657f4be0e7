"""The words for a reason code, known or not."""

from __future__ import annotations

from hardening.core.reasons import Reason

__all__ = ["explanation_of", "label_of"]


def label_of(code: str) -> str:
    """The code in words."""
    return code.replace("_", " ")


def explanation_of(code: str) -> str:
    """One sentence for the operator; empty for a code of another version."""
    return Reason(code).explanation if code in set(Reason) else ""
