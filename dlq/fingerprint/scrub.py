"""Takes out of a message what differs from letter to letter: what is left are its fixed words. Pure.

One pass over a text that was cut before; each pattern is bounded, so no text makes it slow.
"""

from __future__ import annotations

import re

__all__ = ["scrub"]

_PATTERNS = {
    "url": r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s'\"<>]{1,500}",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}",
    "id": r"\b[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\b",
    "date": r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?\b"
    r"|\b\d{1,2}(?P<_>[./])\d{1,2}(?P=_)(?:\d{4}|\d\d)\b"
    r"|\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?\b",
    "host": r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{0,4}"
    r"|(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){0,6}[A-Za-z][A-Za-z0-9-]{0,62}:\d{2,5}\b",
    "hex": r"\b0[xX][0-9A-Fa-f]{1,64}\b|\b(?=[A-Fa-f]{0,40}\d)(?=\d{0,40}[A-Fa-f])[0-9A-Fa-f]{8,}\b",
    "path": r"(?<![\w/<])(?:~|\.{1,2})?/[\w.@+%~=-]{1,255}(?:/[\w.@+%~=-]{0,255}){0,40}"
    r"|\b[A-Za-z]:\\[^\s'\"<>|]{1,255}",
    "value": r"(?<!\w)'(?:[^'\\\n]|\\.){0,200}'(?!\w)"
    r'|(?<!\w)"(?:[^"\\\n]|\\.){0,200}"(?!\w)'
    r"|“[^”\n]{0,200}”|«[^»\n]{0,200}»|„[^“”\n]{0,200}[“”]|`[^`\n]{0,200}`",
    "token": r"\b(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{24,}\b",
    "number": r"(?:(?<!\w)[-+])?\d+(?:[.,]\d+)*",
}
_VARYING = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items()))
# Python's own messages quote names of the code, which no person typed: they say more than a placeholder.
_CODE = re.compile(r"'[A-Za-z_][\w.]{0,60}'$")
_BEFORE_CODE = (" attribute ", "module named ", "import name ", "local variable ", " of type ")
_BETWEEN_TYPES = ("operand type(s) for ", "not supported between instances of ")
_SPACE = re.compile(r"\s+")


def scrub(text: str) -> str:
    """The text with a placeholder for each id, number, address, date, path and quoted value."""
    return _SPACE.sub(" ", _VARYING.sub(_placeholder, text)).strip()


def _placeholder(found: re.Match[str]) -> str:
    kind = found.lastgroup or "value"
    if kind == "number":
        return "#"
    if kind == "value" and _CODE.match(found[0]) and _is_of_code(found):
        return found[0]
    return f"<{kind}>"


def _is_of_code(found: re.Match[str]) -> bool:
    text, start, end = found.string, found.start(), found.end()
    if text.startswith((" object ", " object."), end) or text.endswith(_BEFORE_CODE, 0, start):
        return True
    return any(phrase in text for phrase in _BETWEEN_TYPES)
