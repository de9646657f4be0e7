"""DLQ["RETENTION"], DLQ["ALERTS"] and ages: what is wrong deletes nothing, and is said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dlq.ages import age_of, age_text
from dlq.checks import retention_finding
from dlq.conf import read_dlq_settings
from dlq.retention.rules import read_retention
from dlq.thresholds import AlertThresholds

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90 d", 90 * DAY),
        ("12h", DAY / 2),
        (" 1.5 d ", 1.5 * DAY),
        ("2 w", 14 * DAY),
        ("999999 w", 36_500 * DAY),
    ],
)
def test_an_age_is_read_as_people_write_it(text, age) -> None:
    assert age_of(text) == age


@pytest.mark.parametrize("text", ["", "90", "d", "90 days", "-1 d", "1e9 d", 90, None, "٣ d"])
def test_what_is_no_age_is_refused(text) -> None:
    with pytest.raises(ValueError, match="is no age"):
        age_of(text)


def test_an_age_is_shown_in_its_largest_whole_unit() -> None:
    assert [age_text(age) for age in (14 * DAY, 90 * DAY, DAY / 2, timedelta(seconds=90))] == [
        "2 w",
        "90 d",
        "12 h",
        "90 s",
    ]


def test_nothing_set_is_no_rule() -> None:
    empty: list[dict[str, str] | None] = [None, {}]
    for nothing in empty:
        rules, wrong = read_retention(nothing)
        assert not rules.any
        assert wrong == []


def test_items_of_operations_are_kept_as_long_as_closed_letters_unless_said_otherwise() -> None:
    assert read_retention({"replayed": "10 d", "discarded": "90 d"})[0].operations == 90 * DAY
    assert read_retention({"replayed": "10 d", "operations": "5 d"})[0].operations == 5 * DAY
    assert read_retention({"open": {"after": "365 d", "reason": "too old"}})[0].operations is None


def test_open_letters_are_given_up_only_with_an_age_and_a_reason() -> None:
    rules, wrong = read_retention({"open": {"after": "365 d", "reason": " nobody needs it "}})
    assert (rules.open_after, rules.open_reason, wrong) == (365 * DAY, "nobody needs it", [])

    for refused in ("365 d", {"after": "365 d"}, {"after": "365 d", "reason": " "}, {"reason": "x"}):
        rules, wrong = read_retention({"open": refused})
        assert rules.open_after is None
        assert [each.key for each in wrong] == ["open"]


@pytest.mark.parametrize(
    "entry",
    [{"replayed": 90}, {"replayed": "1 min"}, {"replaying": "90 d"}, {"discarded": {"after": "90 d"}}],
)
def test_a_wrong_entry_deletes_nothing_and_is_an_error(entry) -> None:
    conf, findings = read_dlq_settings({"RETENTION": entry})

    assert not conf.retention_rules.any
    assert [(each.code, each.where) for each in findings] == [
        ("CH020", f'settings.DLQ["RETENTION"]["{next(iter(entry))}"]')
    ]


def test_that_no_retention_is_set_is_told_before_a_deployment(settings) -> None:
    settings.DLQ = {}
    finding = retention_finding()
    assert finding is not None
    assert finding.code == "CH032"

    settings.DLQ = {"RETENTION": {"discarded": "90 d"}}
    assert retention_finding() is None


def test_thresholds_have_defaults_and_bad_ones_are_told() -> None:
    conf, findings = read_dlq_settings(
        {"ALERTS": {"GROWTH_PER_MINUTE": 0, "STORE_MEGABYTES": None, "OLDEST_OPEN_DAYS": "7 d", "OLDEST": 7}}
    )

    assert conf.thresholds.growth_per_minute == AlertThresholds().growth_per_minute
    assert conf.thresholds.oldest_open_days == AlertThresholds().oldest_open_days
    assert conf.thresholds.store_megabytes is None
    assert {each.where for each in findings} == {
        f'settings.DLQ["ALERTS"]["{name}"]' for name in ("GROWTH_PER_MINUTE", "OLDEST_OPEN_DAYS", "OLDEST")
    }
