"""The questions of a replay or a copy: why, where to, how fast, and when to stop."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from dlq.conf import dlq_settings
from dlq.operations.pace import RAMP_STEPS, Pace, Ramp, Rate, Share, Unlimited
from hardening.core.apps import NoCeleryApp, celery_app

from .actions import TextField

__all__ = ["ReplayForm", "known_queues"]

_MOST_QUEUES = 200
_PACES = (
    ("ramp", _("Ramp up: each step waits for the outcomes of the one before")),
    ("rate", _("A fixed rate")),
    ("share", _("A share of what the workers of the queue get done")),
    ("unlimited", _("All at once")),
)


class ReplayForm(forms.Form):
    """`cleaned_data["pace"]` is a Pace."""

    why = TextField(
        label=_("Reason"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
        help_text=_("Kept with the operation, for who reads of it later."),
    )
    queue = TextField(
        label=_("Another queue (optional)"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs={"class": "vTextField", "list": "dlq-queues", "autocomplete": "off"}),
        help_text=_("Empty: each goes back to where it came from."),
    )
    pace = forms.ChoiceField(
        label=_("Pace"), required=False, choices=_PACES, initial="ramp", widget=forms.RadioSelect
    )
    steps = TextField(
        label=_("Letters in each step; the last one is repeated"),
        required=False,
        initial=", ".join(map(str, RAMP_STEPS)),
        widget=forms.TextInput(attrs={"class": "vTextField", "inputmode": "numeric"}),
    )
    per_second = forms.FloatField(
        label=_("Letters a second"),
        required=False,
        min_value=0.01,
        max_value=100_000,
        initial=50,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    percent = forms.FloatField(
        label=_("Percent of it"),
        required=False,
        min_value=0.1,
        max_value=100,
        initial=20,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    pause_above_percent = forms.IntegerField(
        label=_("Pause when more than this percentage fails again"),
        required=False,
        min_value=0,
        max_value=100,
        initial=10,
        help_text=_("Judged from the tenth known outcome on. 100: never."),
    )
    pause_on_same_cause = forms.BooleanField(
        label=_("Pause when a letter comes back with the same cause"),
        required=False,
        initial=True,
        help_text=_("At the first one: what was to be mended is not mended."),
    )
    over_limit = forms.BooleanField(
        label=_("Also letters that were replayed too often"),
        required=False,
    )

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data, auto_id="dlq-%s", label_suffix="")
        self.fields["over_limit"].help_text = gettext(
            "Otherwise those that came back from %(limit)d replays are left alone."
        ) % {"limit": dlq_settings().replay_limit}

    @property
    def queues(self) -> list[str]:
        """To choose from."""
        return known_queues()

    def clean_pause_above_percent(self) -> int:
        """Ten where nothing was given."""
        given = self.cleaned_data["pause_above_percent"]
        return 10 if given is None else int(given)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            data["pace"] = self._pace(data)
        except ValidationError as exc:
            for field, errors in exc.error_dict.items():
                self.add_error(field, errors)
        return data

    def _pace(self, data: dict[str, Any]) -> Pace:
        match data.get("pace"):
            case "unlimited":
                return Unlimited()
            case "rate":
                return Rate(per_second=self._number("per_second", data))
            case "share":
                return Share(percent=self._number("percent", data))
        try:
            return Ramp(steps=_steps(data.get("steps", "")))
        except ValueError as exc:
            text = _("Whole numbers from 1 with commas between them, none smaller than the one before.")
            raise ValidationError({"steps": text}) from exc

    def _number(self, name: str, data: dict[str, Any]) -> float:
        if name in self.errors:
            return 1.0  # Said already.
        if data.get(name) is None:
            raise ValidationError({name: _("This pace needs a number.")})
        return float(data[name])


def known_queues() -> list[str]:
    """To choose from; bounded."""
    try:
        return sorted(map(str, celery_app().amqp.queues))[:_MOST_QUEUES]
    except NoCeleryApp:
        return []


def _steps(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.replace(" ", ",").split(",") if part)
    return found or RAMP_STEPS
