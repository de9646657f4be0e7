"""The mixin for django-unfold: its stylesheet is on the pages of those who ask for it, and on no others."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.staticfiles import finders

from dlq.admin import DeadLetterAdmin, LetterGroupAdmin, OperationAdmin
from dlq.admin.unfold import UnfoldMixin
from dlq.models import DeadLetter, LetterGroup, Operation

SHEET = "dlq/unfold.css"


@pytest.mark.parametrize(
    ("model", "stock"),
    [(DeadLetter, DeadLetterAdmin), (LetterGroup, LetterGroupAdmin), (Operation, OperationAdmin)],
)
def test_the_sheet_is_on_pages_with_the_mixin_and_on_no_others(model, stock):
    mixed = type("Mixed", (UnfoldMixin, stock), {})

    assert SHEET not in str(stock(model, admin.site).media)
    assert SHEET in str(mixed(model, admin.site).media)
    assert finders.find(SHEET)
