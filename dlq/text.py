"""Makes anything fit a database column, so that no letter is refused for what it says. Pure."""

from __future__ import annotations

import re

__all__ = ["MOST_INTEGER", "clean", "clip", "fit_integer", "whole_number", "without_credentials"]

MOST_INTEGER = 2**31 - 1
_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/@\s]*@", re.IGNORECASE)


def clean(text: str) -> str:
    """`text` with what a database cannot store (NUL, lone surrogates) spelled out instead."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\x00", "\\x00")


def clip(value: object, length: int) -> str:
    """As text, cleaned and cut to at most `length` characters; None becomes empty."""
    return "" if value is None else clean(str(value))[:length]


def whole_number(value: object) -> int | None:
    """`value` as a whole number; None for what is none, such as "high" or infinity."""
    if not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def fit_integer(value: object) -> int:
    """The nearest whole number from 0 to what a four-byte column holds; 0 for what is no number."""
    return max(0, min(whole_number(value) or 0, MOST_INTEGER))


def without_credentials(text: str) -> str:
    """`text` with the user and password of every URL in it removed."""
    return _CREDENTIALS.sub(r"\g<scheme>", text)
