"""Which permissions a task's letters ask for: DLQ["TASK_PERMISSIONS"], by patterns of task names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .wrong import Wrong

__all__ = ["VIEW", "TaskRule", "read_task_permissions", "regex_of", "rules_for", "withheld"]

VIEW = "view"
"""The one action that is none: everything else changes something, or sends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRule:
    """Letters of tasks that fit `pattern` ask for `permission`; with `hidden` to be seen, too.

    `*` in a pattern is any text. Upper and lower case differ.
    """

    pattern: str
    permission: str
    hidden: bool = False

    def fits(self, task_name: str) -> bool:
        """Whether the rule is about this task."""
        return re.search(regex_of([self.pattern]), task_name) is not None

    def guards(self, action: str) -> bool:
        """Whether it asks for its permission for this."""
        return self.hidden or action != VIEW


def read_task_permissions(raw: Mapping[str, Any]) -> tuple[tuple[TaskRule, ...], list[Wrong]]:
    """The rules, and what is wrong. A wrong entry guards all the same: nobody but a superuser may."""
    rules: list[TaskRule] = []
    wrong: list[Wrong] = []
    given: Mapping[Any, Any] = raw
    for pattern, value in given.items():
        entry = value if isinstance(value, Mapping) else {"permission": value}
        permission, hidden = entry.get("permission"), entry.get("hidden", False)
        good = (
            isinstance(pattern, str)
            and isinstance(permission, str)
            and re.fullmatch(r"[^.\s]+\.\S+", permission) is not None
            and isinstance(hidden, bool)
            and set(entry) <= {"permission", "hidden"}
        )
        if good:
            rules.append(TaskRule(pattern=pattern, permission=str(permission), hidden=hidden))
            continue
        rules.append(TaskRule(pattern=str(pattern), permission="dlq.wrong_entry", hidden=hidden is not False))
        wrong.append(
            Wrong(
                key=str(pattern),
                what=f"{value!r} names no permission",
                remedy='Write "app.codename", or {"permission": "app.codename", "hidden": True}.',
            )
        )
    return tuple(rules), wrong


def rules_for(rules: Iterable[TaskRule], action: str) -> tuple[TaskRule, ...]:
    """Those that have a say in this action."""
    return tuple(rule for rule in rules if rule.guards(action))


def withheld(rules: Iterable[TaskRule], action: str, held: Iterable[str]) -> tuple[str, ...]:
    """The patterns whose tasks are kept from somebody who holds these permissions."""
    mine = frozenset(held)
    return tuple(rule.pattern for rule in rules_for(rules, action) if rule.permission not in mine)


def regex_of(patterns: Iterable[str]) -> str:
    """One regular expression for all, which Python and each database read alike."""
    each = ("(.|\n)*".join(re.escape(part) for part in pattern.split("*")) for pattern in patterns)
    return f"^({'|'.join(each)})$"
