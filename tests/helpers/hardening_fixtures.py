"""Fixtures for tests of hardening: nothing that one test leaves in the process reaches the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from . import hardened_apps
from .hardened_apps import EVENTS, LETTERS, SINK, RecordingSink

__all__ = ["isolated", "recording"]


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared tasks and finalizers of this test end with it."""
    monkeypatch.setattr(
        hardened_apps.state, "_on_app_finalizers", set(hardened_apps.state._on_app_finalizers)
    )


@pytest.fixture
def recording(settings: Any) -> Iterator[None]:
    """Letters and results are recorded in EVENTS and LETTERS."""
    settings.HARDENING = dict(SINK)
    EVENTS.clear()
    LETTERS.clear()
    RecordingSink.down = False
    yield
    RecordingSink.down = False
