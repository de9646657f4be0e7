"""What the page of one group shows. A fixed number of queries, however many letters the group has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.http import urlencode

from dlq.conf import database_alias
from dlq.groups.figures import (
    OPEN_CAP,
    FacetValue,
    facets,
    is_behind,
    newest_letters,
    open_counts,
    shown_count,
    trends,
)
from dlq.groups.releases import known_releases
from dlq.models import Attempt, DeadLetter, LetterGroup
from dlq.reasons import label_of
from dlq.states import State

from .charts import day_chart, week_chart
from .group_facets import FACET_LABELS
from .group_triage import Chosen
from .group_verbs import VERBS, VerbForm, form_of

if TYPE_CHECKING:
    from .groups import LetterGroupAdmin

__all__ = ["group_context"]

_MOST_VALUES = 8
_MOST_LETTERS = 10
_MOST_OWNERS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facet:
    label: str | Promise
    values: Sequence[FacetValue]
    more: bool
    address: str


def group_context(model_admin: LetterGroupAdmin, request: HttpRequest, group: LetterGroup) -> dict[str, Any]:
    """All of it; nothing that acts for who may not act."""
    now = timezone.now()
    trend = trends([group.pk], now=now)[group.pk]
    opened = open_counts([group.pk])[group.pk]
    sample = _sample(group)
    letters = reverse("admin:dlq_deadletter_changelist", current_app=model_admin.admin_site.name)
    context: dict[str, Any] = {
        "group": group,
        "reason": label_of(group.reason),
        "charts": [day_chart(trend, now=now), week_chart(trend, now=now)],
        "open": opened,
        "open_shown": shown_count(opened),
        "open_is_capped": opened > OPEN_CAP,
        "facets": _facets(model_admin, group.pk),
        "sample": sample,
        "attempt": _last_attempt(sample),
        "letters": list(newest_letters(group.pk, most=_MOST_LETTERS)),
        "letters_address": f"{letters}?{urlencode({'group': group.pk})}",
        "open_address": f"{letters}?{urlencode({'group': group.pk, 'state__exact': State.OPEN.value})}",
        "is_behind": is_behind(),
        "may_triage": model_admin.may_triage(request, group),
        "may_replay": model_admin.may_replay(request, group),
        "replay_address": model_admin.address(group.pk, "replay"),
    }
    if context["may_triage"]:
        context |= _triage(model_admin, request, group)
    return context


def _triage(model_admin: LetterGroupAdmin, request: HttpRequest, group: LetterGroup) -> dict[str, Any]:
    given: dict[str, dict[str, Any]] = {"assign": {"owner": group.owner}, "note": {"text": group.note}}
    may_replay = model_admin.may_replay(request, group)
    me = request.user.get_username()
    owners = model_admin.get_queryset(request).exclude(owner="").order_by("owner")
    names = owners.values_list("owner", flat=True).distinct()[:_MOST_OWNERS]
    forms: dict[str, dict[str, Any]] = {
        verb.name: {
            "verb": verb,
            "action": model_admin.triage_address(verb.name),
            "form": _form(verb.name, given.get(verb.name), may_replay=may_replay),
            "fits": verb.fits(group.state),
        }
        for verb in VERBS.values()
    }
    return {
        "triage": forms,
        "chosen": str(Chosen(fingerprint=group.pk, was=group.state)),
        "me": me,
        "owners": list(dict.fromkeys([me, *names])),
        "releases": known_releases(),
    }


def _form(name: str, initial: dict[str, Any] | None, *, may_replay: bool) -> VerbForm:
    return form_of(VERBS[name], initial=initial, may_replay=may_replay)


def _facets(model_admin: LetterGroupAdmin, fingerprint: str) -> list[_Facet]:
    found = facets(fingerprint, most=_MOST_VALUES + 1)
    return [
        _Facet(
            label=label,
            values=found[facet][:_MOST_VALUES],
            more=len(found[facet]) > _MOST_VALUES,
            address=model_admin.facet_address(facet),
        )
        for facet, label in FACET_LABELS.items()
    ]


def _sample(group: LetterGroup) -> DeadLetter | None:
    if group.sample_id is None:
        return None
    # It may be gone: no constraint holds it.
    letters = DeadLetter.objects.using(database_alias()).filter(pk=group.sample_id)
    return letters.defer("sealed").first()


def _last_attempt(sample: DeadLetter | None) -> Attempt | None:
    if sample is None:
        return None
    attempts = Attempt.objects.using(database_alias()).filter(letter_id=sample.pk)
    return attempts.order_by("-number").first()
