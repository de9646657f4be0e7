"""What can be revoked, and for how long it is remembered. Pure.

A revoke names a task by its id, or all tasks that carry a stamp. Ids and stamps compare exactly, as
Celery compares them: nothing is trimmed, folded or turned into text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery.utils.functional import maybe_list

from hardening.core.findings import Finding
from hardening.retries.reading import Reader, count_of, positive_seconds_of
from hardening.retries.resolve import section_of

__all__ = ["COMMANDS", "LOOK_EVERY_SECONDS", "Revoke", "Rules", "revokes_of", "rules_of"]

CODE = "CH020"

COMMANDS = ("revoke", "terminate", "revoke_by_stamped_headers")
"""The commands to workers that revoke."""

LOOK_EVERY_SECONDS = 5.0
"""How often a worker looks for what it did not hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Remembered for `expires` seconds, and `most` of them at most: those that expire first go first."""

    expires: float = 7 * 86_400.0
    """Longer than a message waits, as a rule: Celery's own 3 h are over before many a countdown is."""

    most: int = 50_000
    """As many as Celery's workers keep in memory."""

    def __post_init__(self) -> None:
        if not 0 < self.expires < math.inf:
            raise ValueError(f"expires is {self.expires!r}: give a finite time above 0 s")
        if self.most == math.inf:
            raise ValueError("most is without limit: every worker keeps them all in memory, so give a number")


def rules_of(raw: Mapping[str, Any]) -> tuple[Rules, list[Finding]]:
    """The rules of HARDENING["REVOKED"], and what of it cannot be used."""
    readers: dict[str, Reader] = {"expires": positive_seconds_of, "most": count_of}
    return section_of(Rules, "REVOKED", raw, readers, code=CODE)


@dataclass(frozen=True, slots=True)
class Revoke:
    """A task id; or, with a header, a stamp: the value that tasks carry in it."""

    value: Any
    header: str | None = None

    @property
    def text(self) -> str:
        """As stores keep it: one line of ASCII, different for any two that differ."""
        return json.dumps([self.value] if self.header is None else [self.value, self.header])

    @property
    def shown(self) -> str:
        """For people."""
        return str(self.value) if self.header is None else f"{self.header}={self.value}"

    @classmethod
    def read(cls, text: str) -> Revoke | None:
        """The other way round; None for what is none."""
        try:
            parts = json.loads(text)
        except ValueError:
            return None
        if not isinstance(parts, list) or not 1 <= len(parts) <= 2 or not _is_plain(parts[0]):
            return None
        return cls(*parts) if len(parts) == 1 or isinstance(parts[1], str) else None


def revokes_of(command: str, arguments: Mapping[str, Any]) -> tuple[Revoke, ...]:
    """What a command to the workers revokes; what no task can be named by is left out, as Celery's
    workers find nothing for it either."""
    if command == "revoke_by_stamped_headers":
        found: Iterable[Revoke] = _stamps(arguments.get("headers"))
    elif command in COMMANDS:
        ids = maybe_list(arguments.get("task_id")) or ()
        found = (Revoke(task_id) for task_id in ids if isinstance(task_id, str))
    else:
        found = ()
    return tuple(dict.fromkeys(found))


def _stamps(headers: Any) -> Iterator[Revoke]:
    if isinstance(headers, (list, tuple)):  # The command line's form; split as Celery splits it.
        pairs = [text.split("=") for text in headers if isinstance(text, str) and "=" in text]
        named: Iterable[tuple[Any, Any]] = [(pair[0], pair[1]) for pair in pairs]
    else:
        named = headers.items() if isinstance(headers, Mapping) else ()
    for header, values in named:
        for value in maybe_list(values) or ():
            if isinstance(header, str) and _is_plain(value):
                yield Revoke(value, header)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))
