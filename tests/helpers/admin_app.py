"""The Celery app that pages of the admin find."""

from __future__ import annotations

import pytest
from celery import Celery

_WHERE = (
    *("dlq.operations.making", "dlq.operations.examine", "dlq.operations.editing", "dlq.operations.runner"),
    "dlq.admin.replay_form",
)


def use_app(monkeypatch: pytest.MonkeyPatch, app: Celery) -> None:
    """For this test."""
    for module in _WHERE:
        monkeypatch.setattr(f"{module}.celery_app", lambda: app)
