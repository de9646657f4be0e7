"""Export, as an action of the admin: a page that asks how, and a file that is written while it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from dlq.models import DeadLetterQuerySet
from dlq.transfer.exporting import Form, exported
from dlq.transfer.lines import Contents

from .permissions import may_see_letters, may_see_payload

if TYPE_CHECKING:
    from .letters import DeadLetterAdmin

__all__ = ["export_page"]

_TEMPLATE = "admin/dlq/deadletter/export.html"
_TYPES = {Form.CSV: "text/csv; charset=utf-8", Form.JSON_LINES: "application/jsonl; charset=utf-8"}
_MOST_COUNTED = 10_000


class ExportForm(forms.Form):
    """As what, and with what."""

    form = forms.ChoiceField(
        label=_("File"),
        choices=[
            (Form.CSV.value, _("CSV: a table, without attempts")),
            (Form.JSON_LINES.value, _("JSON lines: with attempts")),
        ],
        initial=Form.CSV.value,
        widget=forms.RadioSelect,
    )
    payload = forms.BooleanField(
        label=_("Also arguments and headers"),
        required=False,
        help_text=_("As they are shown on pages: secrets are hidden."),
    )

    def __init__(self, data: QueryDict | None, *, payload: bool) -> None:
        super().__init__(data, auto_id="dlq-%s", label_suffix="")
        if not payload:
            del self.fields["payload"]


def export_page(
    model_admin: DeadLetterAdmin,
    request: HttpRequest,
    letters: DeadLetterQuerySet,
    *,
    hidden: Iterable[tuple[str, str]],
) -> HttpResponseBase:
    """The page, or, when it was posted, the file. Arguments only for who may see payloads: else refused."""
    if not may_see_letters(request):
        raise PermissionDenied
    form = ExportForm(None, payload=may_see_payload(request))
    if request.POST.get("confirmed") == "yes":
        if "payload" in request.POST and not may_see_payload(request):
            raise PermissionDenied
        form = ExportForm(request.POST, payload=may_see_payload(request))
        if form.is_valid():
            return _file(Form(form.cleaned_data["form"]), letters, bool(form.cleaned_data.get("payload")))
    count = letters[: _MOST_COUNTED + 1].count()
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": _("Export dead letters"),
        "subtitle": None,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "form": form,
        "count": min(count, _MOST_COUNTED),
        "is_bounded": count > _MOST_COUNTED,
        "hidden": [*hidden, ("confirmed", "yes")],
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, _TEMPLATE, context)


def _file(form: Form, letters: QuerySet[Any], payload: bool) -> StreamingHttpResponse:
    contents = Contents.SHOWN if payload else Contents.NOTHING
    assert isinstance(letters, DeadLetterQuerySet)
    response = StreamingHttpResponse(
        _in_pieces(exported(letters, form, contents=contents)), content_type=_TYPES[form]
    )
    name = f"dead-letters-{timezone.now():%Y%m%d-%H%M%S}.{form.value}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


def _in_pieces(lines: Iterator[str]) -> Iterator[str]:
    """Some lines at a time: each piece is a chunk of the answer."""
    gathered: list[str] = []
    for line in lines:
        gathered.append(line)
        if len(gathered) >= 100:
            yield "".join(gathered)
            gathered.clear()
    yield "".join(gathered)
