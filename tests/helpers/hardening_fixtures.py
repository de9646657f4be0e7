"""Fixtures for tests of hardening: nothing that one test leaves in the process reaches the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hardening import harden

from . import hardened_apps
from .hardened_apps import EVENTS, LETTERS, SINK, RecordingSink

__all__ = ["isolated", "recording"]


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared tasks of this test end with it, and those of modules that others imported stay out."""
    everyone = hardened_apps.state._on_app_finalizers
    own = {each for each in everyone if each is harden or each.__module__ == "celery.app.builtins"}
    monkeypatch.setattr(hardened_apps.state, "_on_app_finalizers", own)


@pytest.fixture
def recording(settings: Any) -> Iterator[None]:
    """Letters and results are recorded in EVENTS and LETTERS."""
    settings.HARDENING = dict(SINK)
    EVENTS.clear()
    LETTERS.clear()
    RecordingSink.down = False
    yield
    RecordingSink.down = False
