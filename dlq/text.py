"""Makes any text fit a database column, so that no letter is refused for what it says. Pure."""

from __future__ import annotations

import re

__all__ = ["MOST_INTEGER", "clean", "clip", "fit_integer", "without_credentials"]

MOST_INTEGER = 2**31 - 1
_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/@\s]*@", re.IGNORECASE)


def clean(text: str) -> str:
    """`text` with what a database cannot store (NUL, lone surrogates) spelled out instead."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def clip(text: str | None, length: int) -> str:
    """Cleaned and cut to at most `length` characters; None becomes empty."""
    return clean(text or "")[:length]


def fit_integer(number: int) -> int:
    """The nearest whole number from 0 to what a four-byte column holds: headers may claim any."""
    return max(0, min(number, MOST_INTEGER))


def without_credentials(text: str) -> str:
    """`text` with the user and password of every URL in it removed."""
    return _CREDENTIALS.sub(r"\g<scheme>", text)
