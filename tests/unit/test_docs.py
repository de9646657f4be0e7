"""The generated reference says what the code says."""

from __future__ import annotations

import pytest

from docs.generate import REFERENCE, pages


@pytest.mark.parametrize("name", ["settings.md", "enforced.md", "reasons.md"])
def test_a_generated_page_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text() == pages()[name], "run: make reference"


def test_every_setting_is_explained() -> None:
    assert "| |" not in pages()["settings.md"]
