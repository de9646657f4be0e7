"""HARDENING["ALERTS"]: safe with nothing set; a wrong entry is a finding that quotes no secret."""

from __future__ import annotations

import pytest

from hardening.alerts.channel import channel_findings, channels_of
from hardening.alerts.rules import AlertRules, alerts_of
from hardening.conf import load_settings
from hardening.core.alerts import Severity

WEBHOOK = "hardening.alerts.channels.webhook.WebhookChannel"
SECRET = "https://hooks.example/T0/s3cr3tpath"


def test_with_nothing_set_the_log_is_told() -> None:
    rules, findings = alerts_of({})

    assert (rules, findings) == (AlertRules(), [])
    assert [rule.name for rule, _ in channels_of(rules)] == ["log"]


def test_channels_are_read_with_names_of_their_own() -> None:
    rules, findings = alerts_of(
        {
            "CHANNELS": [
                {"BACKEND": WEBHOOK, "OPTIONS": {"url": SECRET}, "MIN_SEVERITY": "error"},
                {"BACKEND": WEBHOOK, "OPTIONS": {"url": SECRET}, "NAME": "night"},
            ],
            "REMIND_EVERY": "1 h",
            "BASE_URL": "https://shop.example/",
        }
    )

    assert findings == []
    assert [(rule.name, rule.min_severity) for rule in rules.channels] == [
        ("webhook", Severity.ERROR),
        ("night", Severity.INFO),
    ]
    assert (rules.remind_every, rules.base_url) == (3600, "https://shop.example")
    assert "s3cr3t" not in repr(rules)


@pytest.mark.parametrize(
    "wrong",
    [
        {"CHANNELS": SECRET},
        {"CHANNELS": [SECRET]},
        {"CHANNELS": [{"BACKEND": SECRET.replace(".", "")}]},
        {"CHANNELS": [{"BACKEND": WEBHOOK, "OPTIONS": SECRET}]},
        {"CHANNELS": [{"BACKEND": WEBHOOK, "URL": SECRET}]},
        {"CHANNELS": [{"BACKEND": WEBHOOK, "MIN_SEVERITY": SECRET}]},
        {"CHANNELS": [{"BACKEND": WEBHOOK}, {"BACKEND": WEBHOOK}]},
        {"CHANNELS": [{"BACKEND": WEBHOOK}] * 9},
        {"CHANNEL": []},
        {"MUTED": "shop.probe"},
        {"BASE_URL": "shop.example"},
        SECRET,
    ],
    ids=[
        "no-list",
        "no-dict",
        "backend",
        "options",
        "unknown-key",
        "severity",
        "twice",
        "many",
        "key",
        "muted",
        "base-url",
        "all",
    ],
)
def test_a_wrong_entry_is_an_error_without_its_secrets(settings, wrong) -> None:
    settings.HARDENING = {"ALERTS": wrong}

    loaded, findings = load_settings()

    assert [f.code for f in findings] == ["CH001" if wrong is SECRET else "CH030"]
    assert "ALERTS" in findings[0].where
    assert "s3cr3t" not in repr(findings)
    assert loaded.alert_rules.channels


@pytest.mark.parametrize(
    ("backend", "options", "said"),
    [
        (WEBHOOK, {"url": "ftp://host/s3cr3tpath"}, "none of http"),
        (WEBHOOK, {"uri": SECRET}, "uri"),
        ("hardening.alerts.channels.email.EmailChannel", {}, "nobody to write to"),
        ("hardening.alerts.channels.pigeon.Pigeon", {}, "pigeon"),
        ("hardening.alerts.rules.ChannelRule", {"name": "x", "backend": "s3cr3tpath"}, "Channel"),
    ],
    ids=["ftp", "option", "recipient", "missing", "protocol"],
)
def test_a_channel_that_cannot_be_used_is_a_warning_and_the_log_is_told_instead(
    backend, options, said, caplog
) -> None:
    rules, findings = alerts_of({"CHANNELS": [{"BACKEND": backend, "OPTIONS": options, "NAME": "it"}]})
    assert findings == []

    (finding,) = channel_findings(rules)

    assert finding.code == "CH031"
    assert finding.level.name == "WARNING"
    assert said in finding.what
    assert [rule.name for rule, _ in channels_of(rules)] == ["log"]
    assert "s3cr3t" not in repr(finding) + caplog.text
