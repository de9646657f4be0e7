"""A real browser, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.conftest import absent


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        absent(
            "chromium and chromedriver are not on PATH: install the Debian packages chromium, chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
        *("disable-background-networking", "disable-component-update", "window-size=1400,1100"),
        f"user-data-dir={tmp_path / 'profile'}",
    ):
        options.add_argument(f"--{flag}")
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    running.implicitly_wait(5)
    yield running
    running.quit()
