"""Names of schedules in a database: any text, told apart to the letter. Pure.

Databases differ in which names are equal (MariaDB ignores case and blanks at the end) and in what text they
take (PostgreSQL has no NUL, none has lone surrogates). So rows are found by a digest of the name, and the
name itself is kept for people, with what no database takes escaped.
"""

from __future__ import annotations

import re
from hashlib import sha256

__all__ = ["KEY_LENGTH", "clean", "key_of", "restored", "stored"]

KEY_LENGTH = 32
"""128 bits in hexadecimal."""

_SPECIAL = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def key_of(name: str) -> str:
    """Another one for each name."""
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_LENGTH]


def stored(name: str) -> str:
    """The name as its column takes it."""
    return _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", name)


def restored(text: str) -> str:
    """The name of a column's text."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def clean(text: str) -> str:
    """Text for people, without what no database takes."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
