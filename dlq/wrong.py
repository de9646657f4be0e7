"""An entry within a dict of the settings that is left out: what is wrong, what would be right. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """`key` is its key in that dict."""

    key: str
    what: str
    remedy: str
