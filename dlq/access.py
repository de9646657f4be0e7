"""Who may see and act on letters of which tasks, beside the permissions of Django: DLQ["TASK_PERMISSIONS"].

The question is put to the database as a filter, so that lists, selections of all and single letters are
decided by the same words. It only ever takes away: whoever asks has checked the permission for the action
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db.models import QuerySet

from .access_rules import VIEW, TaskRule, read_task_permissions, regex_of, withheld
from .conf import database_alias, dlq_settings
from .models import DeadLetter, DeadLetterQuerySet, LetterGroup, OperationItem

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

    AnyUser = User | AnonymousUser

__all__ = ["VIEW", "allowed", "covers", "groups_for", "items_for", "letters_for", "may"]

Q = TypeVar("Q", bound=QuerySet[Any])


def letters_for(user: AnyUser, action: str, letters: DeadLetterQuerySet | None = None) -> DeadLetterQuerySet:
    """Of these letters (default: all) those that this user may see (`action` VIEW) or act on (any other)."""
    if letters is None:
        letters = DeadLetter.objects.using(database_alias()).all()
    return allowed(user, action, letters)


def groups_for(
    user: AnyUser, action: str, groups: QuerySet[LetterGroup] | None = None
) -> QuerySet[LetterGroup]:
    """The same for groups: all letters of one are of one task."""
    if groups is None:
        groups = LetterGroup.objects.using(database_alias()).all()
    return allowed(user, action, groups)


def items_for(user: AnyUser, action: str, items: QuerySet[OperationItem]) -> QuerySet[OperationItem]:
    """The same for items of operations. Those whose letter was purged are left to who may see every task."""
    return allowed(user, action, items, field="letter__task_name")


def allowed(user: AnyUser, action: str, rows: Q, *, field: str = "task_name") -> Q:
    """The same for any rows with a task's name in `field`."""
    patterns = _withheld(user, action)
    return rows.exclude(**{f"{field}__regex": regex_of(patterns)}) if patterns else rows


def may(user: AnyUser, action: str, task_name: str) -> bool:
    """Whether letters of this task may be seen, or acted on, by this user."""
    return all(rule.pattern not in _withheld(user, action) for rule in _rules() if rule.fits(task_name))


def covers(user: AnyUser, action: str, letters: DeadLetterQuerySet) -> bool:
    """Whether this user may do it to every one of these letters: for an operation that others made."""
    patterns = _withheld(user, action)
    return not patterns or not letters.filter(task_name__regex=regex_of(patterns)).exists()


def _rules() -> tuple[TaskRule, ...]:
    return read_task_permissions(dlq_settings().task_permissions)[0]


def _withheld(user: AnyUser, action: str) -> tuple[str, ...]:
    rules = _rules()
    has_perm: Any = getattr(user, "has_perm", None)
    held = {rule.permission for rule in rules if has_perm is not None and has_perm(rule.permission)}
    return withheld(rules, action, held)
