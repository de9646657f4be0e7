"""Who may do what to operations: asked by every page before it shows, and by every POST before it acts.

- making one (replay or copy): seeing letters and replaying them.
- seeing one: `view_operation`; or having made it, while one may make operations.
- starting, pausing, resuming, cancelling, examining one: seeing it, and `operate_operation`; or having
  made it, while one may make operations.
- approving one: seeing it, `operate_operation`, and not having made it.
- editing a letter: making operations, seeing payloads, and `edit_deadletter`.

Beside these `dlq.access` may withhold letters of some tasks: they are in no operation that such a user
makes, and who may not act on all letters of an operation cannot start, approve or resume it, only pause or
cancel it.

Who made an operation is known by name, as everywhere in its records.
"""

from __future__ import annotations

from django.http import HttpRequest

from dlq.models import NAME_LENGTH, Operation
from dlq.text import clip

__all__ = [
    "has_permission",
    "is_own",
    "may_approve",
    "may_control",
    "may_edit",
    "may_make",
    "may_see",
    "may_see_letters",
    "may_see_payload",
    "name_of",
    "sees_only_own",
]


def has_permission(request: HttpRequest, codename: str) -> bool:
    """A permission of this app."""
    return request.user.has_perm(f"dlq.{codename}")


def name_of(request: HttpRequest) -> str:
    """Who asks, as operations note it."""
    return clip(request.user.get_username(), NAME_LENGTH)


def may_see_letters(request: HttpRequest) -> bool:
    """Their list and pages, without payloads."""
    return has_permission(request, "view_deadletter")


def may_see_payload(request: HttpRequest) -> bool:
    """Also arguments, old and new."""
    return may_see_letters(request) and has_permission(request, "view_payload")


def may_make(request: HttpRequest) -> bool:
    """Replays and copies of letters."""
    return may_see_letters(request) and has_permission(request, "replay_deadletter")


def may_edit(request: HttpRequest) -> bool:
    """A letter's arguments, and send it with them."""
    return may_make(request) and may_see_payload(request) and has_permission(request, "edit_deadletter")


def is_own(request: HttpRequest, operation: Operation) -> bool:
    """Whether the user made it."""
    return operation.created_by == name_of(request)


def sees_only_own(request: HttpRequest) -> bool:
    """Who may make operations without seeing those of others."""
    return not has_permission(request, "view_operation") and may_make(request)


def may_see(request: HttpRequest, operation: Operation | None = None) -> bool:
    """The operation; without one: whether there is anything to be seen."""
    if has_permission(request, "view_operation"):
        return True
    return may_make(request) and (operation is None or is_own(request, operation))


def may_control(request: HttpRequest, operation: Operation) -> bool:
    """Examine, start, pause, resume, cancel."""
    if not may_see(request, operation):
        return False
    return has_permission(request, "operate_operation") or (may_make(request) and is_own(request, operation))


def may_approve(request: HttpRequest, operation: Operation) -> bool:
    """Only a second person may."""
    return (
        may_see(request, operation)
        and has_permission(request, "operate_operation")
        and not is_own(request, operation)
    )
