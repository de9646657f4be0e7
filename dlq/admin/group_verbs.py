"""What can be said of a group: each a form, one call of `dlq.groups.triage`, a text for the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.groups import triage
from dlq.groups.states import GroupState, group_may_become
from dlq.models import NAME_LENGTH

__all__ = ["VERBS", "Verb", "VerbForm", "form_of"]

# Of the <datalist> in the pages.
_RELEASES, _OWNERS = "dlq-releases", "dlq-owners"
_MOST_NOTE = 10_000
_SPANS = {
    "1h": timedelta(hours=1),
    "8h": timedelta(hours=8),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


class VerbForm(forms.Form):
    """Nothing to fill in. `call` holds the arguments of the function, once the form is valid."""

    def __init__(self, *args: Any, may_replay: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        self.may_replay = may_replay

    @property
    def call(self) -> dict[str, Any]:
        return dict(self.cleaned_data)


class _SnoozeForm(VerbForm):
    span = forms.ChoiceField(
        label=_("For"),
        required=False,
        choices=[
            ("", "---------"),
            ("1h", _("1 hour")),
            ("8h", _("8 hours")),
            ("1d", _("1 day")),
            ("7d", _("7 days")),
            ("30d", _("30 days")),
        ],
    )
    until = forms.DateTimeField(
        label=_("or until a time"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    release = forms.CharField(
        label=_("or until a release runs"),
        required=False,
        max_length=NAME_LENGTH,
        widget=forms.TextInput(attrs={"list": _RELEASES, "class": "vTextField", "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["until"].help_text = _("Time zone: %(zone)s") % {
            "zone": timezone.get_current_timezone_name()
        }

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        given = [name for name in ("span", "until", "release") if found.get(name)]
        if not self.errors and len(given) != 1:
            raise forms.ValidationError(gettext("Give one of them: a span, a time or a release."))
        return found

    @property
    def call(self) -> dict[str, Any]:
        span = _SPANS.get(self.cleaned_data["span"])
        until = timezone.now() + span if span else self.cleaned_data["until"]
        return {"until": until, "release": self.cleaned_data["release"]}


class _ResolveForm(VerbForm):
    in_release = forms.CharField(
        label=_("In a release (optional)"),
        required=False,
        max_length=NAME_LENGTH,
        help_text=_("Letters of older releases do not reopen the group before this one runs."),
        widget=forms.TextInput(attrs={"list": _RELEASES, "class": "vTextField", "autocomplete": "off"}),
    )
    replay = forms.BooleanField(
        label=_("Replay its open letters once that release runs"),
        required=False,
        help_text=_(
            "One operation, made and started by itself, with a ramp that pauses when it fails again."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.may_replay:
            del self.fields["replay"]


class _AssignForm(VerbForm):
    owner = forms.CharField(
        label=_("Owner"),
        required=False,
        max_length=NAME_LENGTH,
        help_text=_("Empty: nobody."),
        widget=forms.TextInput(attrs={"list": _OWNERS, "class": "vTextField", "autocomplete": "off"}),
    )


class _NoteForm(VerbForm):
    text = forms.CharField(
        label=_("Note"),
        required=False,
        max_length=_MOST_NOTE,
        widget=forms.Textarea(attrs={"rows": 4, "class": "vLargeTextField"}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """`target`: the state that it leads to, None where it changes none; `again`: also from that state."""

    name: str
    button: str | Promise
    title: str | Promise
    done: str | Promise
    run: Callable[..., int]
    log: Callable[[Mapping[str, Any]], str]
    form: type[VerbForm] = VerbForm
    target: GroupState | None = None
    again: bool = False

    def fits(self, state: str) -> bool:
        """Whether a group in this state has a way there."""
        if self.target is None or (self.again and state == self.target):
            return True
        return group_may_become(GroupState(state), self.target)


def form_of(verb: Verb, *args: Any, **kwargs: Any) -> VerbForm:
    """Its form, with ids of its own: a page shows several."""
    return verb.form(*args, auto_id=f"dlq-{verb.name}-%s", **kwargs)


def _log_snooze(call: Mapping[str, Any]) -> str:
    if call["release"]:
        return gettext("Snoozed until release %(release)s runs.") % {"release": call["release"].strip()}
    until = timezone.localtime(call["until"]).isoformat(sep=" ", timespec="minutes")
    return gettext("Snoozed until %(until)s.") % {"until": until}


def _log_resolve(call: Mapping[str, Any]) -> str:
    if not call["in_release"]:
        return gettext("Resolved.")
    text = (
        gettext("Resolved in release %(release)s; its open letters are replayed once that runs.")
        if call.get("replay")
        else gettext("Resolved in release %(release)s.")
    )
    return text % {"release": call["in_release"].strip()}


def _log_assign(call: Mapping[str, Any]) -> str:
    owner = call["owner"].strip()
    return gettext("Assigned to %(owner)s.") % {"owner": owner} if owner else gettext("Assigned to nobody.")


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb(
            name="acknowledge",
            button=_("Acknowledge"),
            title=_("Acknowledge groups"),
            done=_("acknowledged"),
            run=triage.acknowledge,
            log=lambda _call: gettext("Acknowledged."),
            target=GroupState.ACKNOWLEDGED,
        ),
        Verb(
            name="snooze",
            button=_("Snooze"),
            title=_("Snooze groups"),
            done=_("snoozed"),
            run=triage.snooze,
            log=_log_snooze,
            form=_SnoozeForm,
            target=GroupState.SNOOZED,
            again=True,
        ),
        Verb(
            name="resolve",
            button=_("Resolve"),
            title=_("Resolve groups"),
            done=_("resolved"),
            run=triage.resolve,
            log=_log_resolve,
            form=_ResolveForm,
            target=GroupState.RESOLVED,
            again=True,
        ),
        Verb(
            name="reopen",
            button=_("Reopen"),
            title=_("Reopen groups"),
            done=_("open again"),
            run=triage.reopen,
            log=lambda _call: gettext("Reopened."),
            target=GroupState.OPEN,
        ),
        Verb(
            name="assign",
            button=_("Assign"),
            title=_("Assign groups"),
            done=_("assigned"),
            run=triage.assign,
            log=_log_assign,
            form=_AssignForm,
        ),
        Verb(
            name="note",
            button=_("Save note"),
            title=_("Note on a group"),
            done=_("noted"),
            run=triage.note,
            log=lambda _call: gettext("Changed the note."),
            form=_NoteForm,
        ),
    )
}
