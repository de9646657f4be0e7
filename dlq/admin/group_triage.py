"""Where all that is said of groups arrives: permission, compare-and-set, log entries, an answer in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext, ngettext

from dlq.conf import database_alias
from dlq.groups.releases import known_releases
from dlq.groups.states import GroupState
from dlq.models import DeadLetter, LetterGroup
from dlq.operations.making import make_operation
from dlq.text import clean

from .group_verbs import VERBS, Verb, VerbForm, form_of
from .permissions import name_of

if TYPE_CHECKING:
    from .groups import LetterGroupAdmin

__all__ = [
    "MOST_AT_ONCE",
    "REPLAY",
    "TRIAGE",
    "Chosen",
    "confirm_page",
    "replay_view",
    "triage_view",
    "valid_fingerprint",
]

MOST_AT_ONCE = 200
# What DLQ["TASK_PERMISSIONS"] is asked for.
TRIAGE, REPLAY = "triage", "replay"
_TEMPLATE = "admin/dlq/lettergroup/confirm.html"
_FINGERPRINT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_STATES = frozenset(state.value for state in GroupState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A group, and the state that it had when the user decided. As text: the value of a hidden field."""

    fingerprint: str
    was: str

    def __str__(self) -> str:
        return f"{self.was}:{self.fingerprint}"


def valid_fingerprint(text: str) -> bool:
    """Whether a database may be asked for it."""
    return _FINGERPRINT.fullmatch(text) is not None


def triage_view(model_admin: LetterGroupAdmin, request: HttpRequest, name: str) -> HttpResponse:
    """Does what was posted; or shows the page again, with what is wrong with it."""
    if not model_admin.has_triage_permission(request):
        raise PermissionDenied
    verb = VERBS.get(name)
    if verb is None:
        raise Http404
    if request.method != "POST":
        return HttpResponseNotAllowed(("POST",))
    chosen = _chosen(request)
    # Only what this user may see.
    groups = {group.pk: group for group in _groups(model_admin, request, chosen)}
    chosen = [each for each in chosen if each.fingerprint in groups]
    if not chosen:
        model_admin.message_user(
            request, gettext("The selection names no groups. Nothing was changed."), messages.ERROR
        )
        return HttpResponseRedirect(model_admin.list_address())
    may_replay = all(model_admin.may_replay(request, group) for group in groups.values())
    if not all(model_admin.may_triage(request, group) for group in groups.values()):
        raise PermissionDenied
    if request.POST.get("replay") and not may_replay:
        # Letters that are replayed by themselves later are replayed by who said so.
        raise PermissionDenied
    form = form_of(verb, request.POST, may_replay=may_replay)
    if form.is_valid():
        try:
            changed = _perform(verb, form, chosen, by=name_of(request))
        except ValueError as exc:
            form.add_error(None, str(exc))
        else:
            _log(request, [groups[each] for each in changed], verb.log(form.call))
            _tell(model_admin, request, verb, chosen, changed)
            return HttpResponseRedirect(_back(model_admin, request, chosen))
    return confirm_page(model_admin, request, verb, list(groups.values()), form=form, chosen=chosen)


def confirm_page(
    model_admin: LetterGroupAdmin,
    request: HttpRequest,
    verb: Verb,
    groups: Sequence[LetterGroup],
    *,
    form: VerbForm | None = None,
    chosen: Sequence[Chosen] | None = None,
    filters: str | None = None,
    left_out: bool = False,
) -> HttpResponse:
    """Which groups, and what has to be given. The page names them: no group that comes later is meant."""
    if not model_admin.has_triage_permission(request):
        raise PermissionDenied
    if chosen is None:
        chosen = [Chosen(fingerprint=group.pk, was=group.state) for group in groups]
    fitting = [group for group in groups if verb.fits(group.state)]
    fits = {group.pk for group in fitting}
    filters = request.POST.get("filters", "") if filters is None else filters
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": verb.title,
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "verb": verb,
        "form": form
        or form_of(verb, may_replay=all(model_admin.may_replay(request, each) for each in fitting)),
        "groups": fitting,
        "unfitting": len(groups) - len(fitting),
        "left_out": left_out,
        "most_at_once": MOST_AT_ONCE,
        "hidden": [
            *(("group", str(each)) for each in chosen if each.fingerprint in fits),
            ("filters", filters),
            ("back", request.POST.get("back", "")),
        ],
        "action": model_admin.triage_address(verb.name),
        "back": _back(model_admin, request, chosen, filters=filters),
        "releases": known_releases() if verb.name in ("snooze", "resolve") else (),
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, _TEMPLATE, context)


def replay_view(model_admin: LetterGroupAdmin, request: HttpRequest, fingerprint: str) -> HttpResponse:
    """An operation on the open letters of the group, planned only: its own page examines and starts it."""
    if not model_admin.has_replay_permission(request):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(("POST",))
    group = model_admin.get_object(request, fingerprint) if valid_fingerprint(fingerprint) else None
    if group is None:
        return model_admin._get_obj_does_not_exist_redirect(request, model_admin.opts, fingerprint)  # type: ignore[attr-defined,no-any-return]
    if not model_admin.may_replay(request, group):
        raise PermissionDenied
    letters = DeadLetter.objects.using(database_alias()).filter(group_id=group.pk).open()
    if not letters.exists():
        model_admin.message_user(request, gettext("No letter of this group is open."), messages.WARNING)
        return HttpResponseRedirect(model_admin.address(group.pk))
    operation = make_operation(
        letters=letters,
        by=name_of(request),
        source={"kind": "group", "fingerprint": group.pk},
        why=clean(request.POST.get("why", "").strip()),
    )
    count = operation.total
    text = ngettext(
        "An operation on %(count)d open letter was made. Nothing was sent yet.",
        "An operation on %(count)d open letters was made. Nothing was sent yet.",
        count,
    ) % {"count": count}
    _log(request, [group], f"{text} ({operation.pk})")
    model_admin.message_user(request, text, messages.SUCCESS)
    with suppress(NoReverseMatch):  # A site of the project's own may leave operations out.
        return HttpResponseRedirect(
            reverse(
                "admin:dlq_operation_change", args=[operation.pk], current_app=model_admin.admin_site.name
            )
        )
    return HttpResponseRedirect(model_admin.address(group.pk))


def _perform(verb: Verb, form: VerbForm, chosen: Iterable[Chosen], *, by: str) -> list[str]:
    """Those that changed. All in one transaction, in one order: what is refused has changed nothing."""
    changed = []
    with transaction.atomic(using=database_alias()):
        for each in sorted(chosen, key=lambda one: one.fingerprint):
            asked = {"was": each.was} if verb.target is not None else {}
            if verb.run([each.fingerprint], by=by, **form.call, **asked):
                changed.append(each.fingerprint)
    return changed


def _chosen(request: HttpRequest) -> list[Chosen]:
    found = {}
    for value in request.POST.getlist("group")[:MOST_AT_ONCE]:
        was, _colon, fingerprint = value.partition(":")
        if was in _STATES and valid_fingerprint(fingerprint):
            found[fingerprint] = Chosen(fingerprint=fingerprint, was=was)
    return list(found.values())


def _groups(
    model_admin: LetterGroupAdmin, request: HttpRequest, chosen: Iterable[Chosen]
) -> Iterable[LetterGroup]:
    return model_admin.get_queryset(request).filter(pk__in=[each.fingerprint for each in chosen])


def _log(request: HttpRequest, groups: Sequence[LetterGroup], text: str) -> None:
    if groups:
        LogEntry.objects.log_actions(
            user_id=cast("int", request.user.pk),  # The view let nobody else in.
            queryset=groups,
            action_flag=CHANGE,
            change_message=text,
        )


def _tell(
    model_admin: LetterGroupAdmin,
    request: HttpRequest,
    verb: Verb,
    chosen: Sequence[Chosen],
    changed: Sequence[str],
) -> None:
    if changed:
        count = len(changed)
        text = ngettext("%(count)d group: %(done)s.", "%(count)d groups: %(done)s.", count)
        model_admin.message_user(request, text % {"count": count, "done": verb.done}, messages.SUCCESS)
    left = [each for each in chosen if each.fingerprint not in set(changed)]
    if not left:
        return
    if len(left) == 1:
        now = next(iter(_groups(model_admin, request, left)), None)
        if now is None:
            text = gettext("The group is gone. Nothing was changed.")
        elif now.state == left[0].was:
            text = gettext("The group is %(state)s already. Nothing was changed.") % {
                "state": now.get_state_display()
            }
        else:
            text = gettext("Somebody was faster: the group is %(state)s now%(by)s. Nothing was changed.") % {
                "state": now.get_state_display(),
                "by": gettext(", by %(name)s") % {"name": now.state_by} if now.state_by else "",
            }
    else:
        text = ngettext(
            "Somebody was faster with %(count)d group, which was left as it is.",
            "Somebody was faster with %(count)d groups, which were left as they are.",
            len(left),
        ) % {"count": len(left)}
    model_admin.message_user(request, text, messages.WARNING)


def _back(
    model_admin: LetterGroupAdmin,
    request: HttpRequest,
    chosen: Sequence[Chosen],
    *,
    filters: str | None = None,
) -> str:
    if request.POST.get("back") == "group" and len(chosen) == 1:
        return model_admin.address(chosen[0].fingerprint)
    return model_admin.list_address(request.POST.get("filters", "") if filters is None else filters)
