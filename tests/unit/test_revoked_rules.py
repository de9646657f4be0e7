"""What a command revokes, how it is written, and what the settings say."""

from __future__ import annotations

import math

import pytest

from hardening.conf import load_settings
from hardening.core.findings import Level
from hardening.revoked.rules import Revoke, Rules, revokes_of, rules_of


@pytest.mark.parametrize(
    ("command", "arguments", "found"),
    [
        ("revoke", {"task_id": "a"}, [Revoke("a")]),
        ("revoke", {"task_id": ["a", "b", "a"], "terminate": True}, [Revoke("a"), Revoke("b")]),
        ("terminate", {"task_id": ("a",), "signal": "KILL"}, [Revoke("a")]),
        ("revoke", {"task_id": None}, []),
        ("revoke", {"task_id": [7, None, "a"]}, [Revoke("a")]),
        ("revoke", {}, []),
        ("revoke_by_stamped_headers", {"headers": {"h": "x"}}, [Revoke("x", "h")]),
        (
            "revoke_by_stamped_headers",
            {"headers": {"h": ["x", 7], "g": {"y"}}},
            [Revoke("x", "h"), Revoke(7, "h"), Revoke("y", "g")],
        ),
        (
            "revoke_by_stamped_headers",
            {"headers": ["h=x", "g=y=z", "none"]},
            [Revoke("x", "h"), Revoke("y", "g")],
        ),
        ("revoke_by_stamped_headers", {"headers": {"h": [object(), math.nan, None], 7: "x"}}, []),
        ("revoke_by_stamped_headers", {"headers": None}, []),
        ("rate_limit", {"task_id": "a"}, []),
    ],
)
def test_a_command_says_what_it_revokes(command, arguments, found) -> None:
    assert list(revokes_of(command, arguments)) == found


@pytest.mark.parametrize(
    "revoke", [Revoke("a"), Revoke("a", "h"), Revoke(7, ""), Revoke("\x00é\ud800\n"), Revoke(1.5, "h")]
)
def test_what_is_written_reads_as_the_same(revoke) -> None:
    assert Revoke.read(revoke.text) == revoke
    assert revoke.text.isascii()
    assert "\n" not in revoke.text


@pytest.mark.parametrize("text", ["", "{", "[]", '["a","b","c"]', "[null]", "[[1]]", '"a"', "7", '["a", 7]'])
def test_what_is_no_revoke_reads_as_none(text) -> None:
    assert Revoke.read(text) is None


def test_a_revoke_is_remembered_longer_than_celery_remembers_it(settings) -> None:
    settings.HARDENING = {}

    rules = load_settings()[0].revoked_rules

    assert rules == Rules(expires=7 * 86400.0, most=50_000)
    assert rules.expires > 10_800


def test_the_settings_are_read(settings) -> None:
    settings.HARDENING = {"REVOKED": {"EXPIRES": "12 h", "MOST": 10}}

    found, findings = load_settings()

    assert findings == []
    assert found.revoked_rules == Rules(expires=12 * 3600.0, most=10)


@pytest.mark.parametrize(
    "wrong", [{"EXPIRES": "soon"}, {"EXPIRES": 0}, {"MOST": 0}, {"MOST": math.inf}, {"MOSTLY": 1}]
)
def test_what_cannot_be_used_is_a_finding_and_the_default_is_used(wrong) -> None:
    rules, findings = rules_of(wrong)

    assert rules == Rules()
    (finding,) = findings
    assert (finding.code, finding.level) == ("CH020", Level.ERROR)
    assert 'HARDENING["REVOKED"]' in finding.where
