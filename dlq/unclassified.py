"""The error classes of open letters that no rule knows, for whoever will write the rules. Reads only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min

from hardening.core.snippets import explain_command, settings_snippet

from .conf import database_alias
from .models import DeadLetter, DeadLetterQuerySet
from .states import State
from .verdicts import UNKNOWN

__all__ = ["MOST_CLASSES", "MOST_TASKS", "Unclassified", "UnclassifiedClass", "unclassified"]

MOST_CLASSES = 100
MOST_TASKS = 5
# Of one class with very many tasks, the pairs must not be all that is read.
_MOST_PAIRS = MOST_CLASSES * MOST_TASKS * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class UnclassifiedClass:
    """One error class. `tasks` are those with the most letters; `more_tasks` counts the others."""

    error_class: str
    letters: int
    tasks: tuple[str, ...]
    more_tasks: int
    first_seen_at: datetime
    last_failed_at: datetime

    @property
    def snippet(self) -> str:
        """Python for the settings module."""
        return settings_snippet([self.error_class])

    @property
    def explain(self) -> str:
        """The command that shows what follows."""
        return explain_command(self.error_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclassified:
    """The classes, those with the most letters first; `more`: there are others."""

    classes: tuple[UnclassifiedClass, ...]
    more: bool

    @property
    def snippet(self) -> str:
        """Python for the settings module, with every class that is listed."""
        return settings_snippet([each.error_class for each in self.classes])


def unclassified(among: DeadLetterQuerySet | None = None) -> Unclassified:
    """At most MOST_CLASSES classes, in two queries. A letter without an error class asks for no rule.

    `among`: of these letters only.
    """
    every: DeadLetterQuerySet = DeadLetter.objects.using(database_alias()).all()
    letters = (
        (every if among is None else among)
        .filter(state=State.OPEN, verdict=UNKNOWN)
        .exclude(error_class="")
        .order_by()
    )
    groups = list(
        letters.values("error_class")
        .annotate(
            letters=Count("*"),
            task_count=Count("task_name", distinct=True),
            first_seen=Min("first_seen_at"),
            last_failed=Max("failed_at"),
        )
        .order_by("-letters", "error_class")[: MOST_CLASSES + 1]
    )
    listed = groups[:MOST_CLASSES]
    tasks = _tasks_of(letters.filter(error_class__in=[each["error_class"] for each in listed]))
    return Unclassified(
        classes=tuple(
            UnclassifiedClass(
                error_class=each["error_class"],
                letters=each["letters"],
                tasks=tuple(tasks[each["error_class"]]),
                more_tasks=max(0, each["task_count"] - len(tasks[each["error_class"]])),
                first_seen_at=each["first_seen"],
                last_failed_at=each["last_failed"],
            )
            for each in listed
        ),
        more=len(groups) > MOST_CLASSES,
    )


def _tasks_of(letters: DeadLetterQuerySet) -> dict[str, list[str]]:
    """The tasks of each class, those with the most letters first."""
    pairs = (
        letters.values_list("error_class", "task_name")
        .annotate(letters=Count("*"))
        .order_by("-letters", "task_name")[:_MOST_PAIRS]
    )
    found: dict[str, list[str]] = defaultdict(list)
    for error_class, task, _letters in pairs:
        if len(found[error_class]) < MOST_TASKS:
            found[error_class].append(task)
    return found
