"""The Chromium of Debian, without a window: one for all of these tests, a profile of its own for each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import absent

PATIENCE_MS = 15_000
"""So long anything may be waited for: less than a test has, so that it says what was missing."""

_FLAGS = (
    *("disable-quic", "no-first-run", "disable-sync", "disable-background-networking"),
    *("disable-component-update", "disable-gpu"),
)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    binary = shutil.which("chromium")
    if binary is None:
        absent("chromium is not on PATH: install the Debian package chromium")
    # Playwright runs a loop in this thread, from which Django therefore refuses to reach the database.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        expect.set_options(timeout=PATIENCE_MS)
        options: dict[str, Any] = {"args": [f"--{flag}" for flag in _FLAGS]}
        with playwright.chromium.launch(
            executable_path=binary, chromium_sandbox=os.geteuid() != 0, **options
        ) as running:
            yield running


@pytest.fixture
def open_page(chromium: Browser, live_server) -> Iterator[Callable[..., Page]]:
    """A tab for somebody new; `java_script_enabled=False`: whose browser runs no script."""
    contexts = []

    def make(**options: Any) -> Page:
        context = chromium.new_context(
            base_url=live_server.url,
            viewport={"width": 1400, "height": 1100},
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.set_default_navigation_timeout(PATIENCE_MS)
        return context.new_page()

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    return open_page()


@pytest.fixture
def scriptless(open_page: Callable[..., Page]) -> Page:
    return open_page(java_script_enabled=False)
