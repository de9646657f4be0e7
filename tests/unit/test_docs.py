"""The generated reference says what the code says."""

from __future__ import annotations

from dataclasses import fields

import pytest

from docs.classification import LIBRARIES
from docs.generate import REFERENCE, pages
from docs.retry_policy import FIELDS
from hardening.classification.builtin import BUILTIN
from hardening.retries.policy import DEFAULTS, RetryPolicy


@pytest.mark.parametrize(
    "name", ["settings.md", "enforced.md", "reasons.md", "classification.md", "retry-policy.md"]
)
def test_a_generated_page_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text() == pages()[name], "run: make reference"


def test_there_is_no_page_that_nobody_generates() -> None:
    assert {path.name for path in REFERENCE.iterdir()} == pages().keys()


def test_every_setting_is_explained() -> None:
    assert "| |" not in pages()["settings.md"]


def test_every_built_in_rule_has_its_line() -> None:
    assert [rule for _, module in LIBRARIES for rule in module.RULES] == list(BUILTIN)
    assert all(f"| `{rule.name}` |" in pages()["classification.md"] for rule in BUILTIN)


def test_every_key_of_a_retry_policy_is_explained() -> None:
    assert list(FIELDS) == [field.name for field in fields(RetryPolicy)]


def test_the_default_schedule_has_a_line_for_each_wait() -> None:
    lines = pages()["retry-policy.md"].partition("## The default schedule")[2].partition("\n\nFrom")[0]

    assert DEFAULTS.limit is not None
    assert (
        lines.count("\n| ") == 1 + DEFAULTS.limit - 1
    )  # The head, and a wait after each attempt but the last.
