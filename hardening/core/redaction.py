"""Hides secrets by parameter name and dotted path, for display, logs and error texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = ["DEFAULT_SECRET_NAMES", "MASK", "Redactor", "_project_names", "project_redactor"]

MASK = "[redacted]"
DEFAULT_SECRET_NAMES = (
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "card",
    "cardnumber",
    "creditcard",
    "cvv",
    "iban",
    "api_key",
)

_SEGMENTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SHORTEST_VALUE = 4  # Shorter values ("1", "no") occur everywhere in a text: masking them destroys it.
_MAX_DEPTH = 32
_MOST_KNOWN = 1000
_LONGEST_KNOWN = 100


class Redactor:
    """Decides which values are secret.

    A plain name ("password") matches every key that contains it as a word, at any depth
    ("new_password", "passwordHash"). A dotted name ("customer.address.zip") matches that path only,
    counted from the arguments.
    """

    def __init__(self, names: Iterable[str] = DEFAULT_SECRET_NAMES) -> None:
        lowered = [name.lower() for name in names]
        self._paths = frozenset(name for name in lowered if "." in name)
        self._names = tuple("".join(_words(name)) for name in lowered if "." not in name)
        self._known: dict[str, bool] = {}

    def is_secret(self, path: Sequence[str]) -> bool:
        """Whether the value at this path of keys must not be shown."""
        if not path:
            return False
        if self._paths and ".".join(path).lower() in self._paths:
            return True
        key = path[-1]
        known = self._known.get(key)
        if known is None:
            known = self._names_a_secret(key)
            # Keys of data may be anything: so many are known and no more, and none is long.
            if len(self._known) < _MOST_KNOWN and len(key) <= _LONGEST_KNOWN:
                self._known[key] = known
        return known

    def _names_a_secret(self, key: str) -> bool:
        words = _words(key)
        joined = "".join(words)
        for name in self._names:
            # A short name must be a word of its own: "card" is not in "discard".
            if name in words or name + "s" in words or (len(name) > 4 and name in joined):
                return True
            if any(
                "".join(words[i:j]) == name for i in range(len(words)) for j in range(i + 2, len(words) + 1)
            ):
                return True
        return False

    def value(self, value: Any, path: Sequence[str] = ()) -> Any:
        """A copy of `value` with every secret in it replaced by a mask."""
        return self._walk(value, tuple(path), 0)

    def arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str] = ()
    ) -> tuple[list[Any], dict[str, Any]]:
        """Redacted copies of a task's arguments; `names` are those of the positional ones."""
        safe_args = [
            self.value(arg, (names[i],)) if i < len(names) else self.value(arg) for i, arg in enumerate(args)
        ]
        return safe_args, {key: self.value(arg, (str(key),)) for key, arg in kwargs.items()}

    def secrets_in(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The secret values among the arguments, as texts, longest first: for `text`."""
        found: set[str] = set()
        for i, arg in enumerate(args):
            self._look(arg, (names[i],) if i < len(names) else (), 0, found)
        for key, arg in kwargs.items():
            self._look(arg, (str(key),), 0, found)
        return tuple(sorted((s for s in found if len(s) >= _SHORTEST_VALUE), key=len, reverse=True))

    def text(self, text: str, secrets: Iterable[str] = ()) -> str:
        """`text` without the given values and without anything like `password=...` in it."""
        for secret in secrets:
            for form in _forms(secret):
                text = text.replace(form, MASK)
        text = self._without_assignments(text)
        return _CREDENTIALS.sub(rf"\g<user>{MASK}@", text) if "://" in text else text

    def _without_assignments(self, text: str) -> str:
        parts: list[str] = []
        copied = 0
        for assignment in _ASSIGNMENT.finditer(text):
            begin = assignment.end()
            if begin < copied or not self.is_secret((assignment["key"],)) or text.startswith(MASK, begin):
                continue
            value = _VALUE.match(text, begin)
            if value is not None:
                parts += (text[copied:begin], MASK)
                copied = value.end()
        return "".join((*parts, text[copied:]))

    def _walk(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        if self.is_secret(path) or depth >= _MAX_DEPTH:
            return MASK
        if isinstance(value, Mapping):
            return {key: self._walk(item, (*path, str(key)), depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._walk(item, path, depth + 1) for item in value]
        return value

    def _look(self, value: Any, path: tuple[str, ...], depth: int, found: set[str]) -> None:
        """As `_walk`, without a copy: what is secret goes to `found`."""
        if self.is_secret(path):
            _collect(value, found)
        elif depth >= _MAX_DEPTH:
            return
        elif isinstance(value, (dict, Mapping)):
            for key, item in value.items():
                self._look(item, (*path, str(key)), depth + 1, found)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._look(item, path, depth + 1, found)


# Begins at the beginning of a word and is bounded: else a long word is read again from each of its letters.
# Without the value, which is read only behind the name of a secret: "https:" comes before "token=".
_ASSIGNMENT = re.compile(r"""(?<![\w-])(?P<key>[\w-]{1,100})\\{0,8}["']?\s{0,20}[=:]\s{0,20}""")
_VALUE = re.compile(r"""(?:(?:Bearer|Basic)\s{1,20})?(?:\\*"[^"]*"|\\*'[^']*'|[^\s,;)&}\]]+)""")
_CREDENTIALS = re.compile(r"(?P<user>://[^\s/:@]{0,200}:)(?!\[redacted\]@)[^\s/@]{1,500}@")


def _forms(secret: str) -> Iterable[str]:
    """A secret as it may stand in a text: plain, in a repr, in JSON, in a URL; the longest first."""
    if secret.isascii() and secret.isalnum():
        return (secret,)  # Nothing writes it in another way.
    forms = {secret, repr(secret)[1:-1], repr(secret.encode("utf-8", "replace"))[2:-1]}
    forms |= {
        json.dumps(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
    }
    return sorted(forms, key=len, reverse=True)


def _words(name: str) -> tuple[str, ...]:
    # A name without ASCII letters is one word: as no word at all it would hide nothing, or everything.
    return tuple(word.lower() for word in _SEGMENTS.findall(name)) or (name.lower(),)


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)
    elif value is not None and not isinstance(value, bool):
        found.add(str(value))


def project_redactor() -> Redactor:
    """The redactor of this project: the built-in names and those of HARDENING["REDACT"]."""
    return Redactor((*DEFAULT_SECRET_NAMES, *_project_names()))


def _project_names() -> tuple[str, ...]:
    """The names of HARDENING["REDACT"]: what was hidden at capture must be hidden wherever it is shown."""
    from django.conf import settings

    configured = getattr(settings, "HARDENING", None)
    extra = configured.get("REDACT", ()) if isinstance(configured, Mapping) else ()
    return (
        tuple(name for name in extra if isinstance(name, str))
        if isinstance(extra, (list, tuple, set))
        else ()
    )
