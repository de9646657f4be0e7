"""Patterns of task names take away; one that is wrong keeps everybody out."""

from __future__ import annotations

import pytest

from dlq.access_rules import TaskRule, read_task_permissions, withheld
from dlq.conf import read_dlq_settings


@pytest.mark.parametrize(
    ("pattern", "task", "fits"),
    [
        ("billing.*", "billing.charge", True),
        ("billing.*", "billing", False),
        ("billing.*", "Billing.charge", False),
        ("billing.*", "shop.billing.charge", False),
        ("*.charge", "billing.eu.charge", True),
        ("*", "", True),
        ("billing.charge", "billing.charge", True),
        ("billing.charge", "billingXcharge", False),
        ("a[b]*", "a[b]c", True),
        ("a.*", "a.b\nc", True),
    ],
)
def test_a_star_is_any_text_and_all_else_is_itself(pattern, task, fits) -> None:
    assert TaskRule(pattern=pattern, permission="a.b").fits(task) is fits


def test_what_is_not_hidden_may_be_seen_by_all_and_acted_on_by_some() -> None:
    rules, _ = read_task_permissions(
        {"billing.*": "shop.billing", "secret.*": {"permission": "shop.secret", "hidden": True}}
    )

    assert withheld(rules, "view", []) == ("secret.*",)
    assert withheld(rules, "replay", []) == ("billing.*", "secret.*")
    assert withheld(rules, "replay", ["shop.billing"]) == ("secret.*",)
    assert withheld(rules, "replay", ["shop.billing", "shop.secret"]) == ()


@pytest.mark.parametrize(
    "entry", ["billing", "", None, 7, {}, {"permission": "a.b", "hidden": "yes"}, {"who": "a.b"}]
)
def test_a_wrong_entry_is_an_error_and_keeps_everybody_out(entry) -> None:
    conf, findings = read_dlq_settings({"TASK_PERMISSIONS": {"billing.*": entry}})

    assert [each.where for each in findings] == ['settings.DLQ["TASK_PERMISSIONS"]["billing.*"]']
    rules, _ = read_task_permissions(conf.task_permissions)
    assert withheld(rules, "replay", ["a.b", "shop.billing"]) == ("billing.*",)
