"""Every wrong entry of a settings dict is its own finding with its remedy, and the others are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dlq.checks import check_deployment, check_settings, findings
from dlq.conf import dlq_settings, read_dlq_settings
from hardening.core.findings import Level
from hardening.core.settings import read_settings


@dataclass(frozen=True)
class Example:
    count: int = 3
    share: float = 0.5
    name: str | None = None
    flag: bool = False
    names: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str = field(default="", metadata={"secret": True})


def read(raw: object):
    return read_settings(Example, raw, name="EXAMPLE", code="CH999")


@pytest.mark.parametrize("raw", [None, {}])
def test_nothing_set_means_every_default_and_no_finding(raw) -> None:
    assert read(raw) == (Example(), [])


def test_right_entries_are_used() -> None:
    conf, found = read(
        {"COUNT": 0, "SHARE": 1, "NAME": "x", "FLAG": True, "NAMES": ["a"], "OPTIONS": {"b": 1}}
    )

    assert found == []
    assert conf == Example(0, 1.0, "x", True, ("a",), {"b": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("COUNT", True), ("COUNT", 1.5), ("COUNT", None), ("COUNT", "3")),
        *(("SHARE", "1"), ("SHARE", False), ("NAME", 3), ("FLAG", 1)),
        *(("NAMES", "abc"), ("NAMES", [1]), ("OPTIONS", [])),
    ],
)
def test_a_wrong_type_is_one_finding_and_the_default_stays(key, value) -> None:
    conf, found = read({key: value, "COUNT" if key != "COUNT" else "SHARE": 7})

    assert [(f.code, f.level, f.where) for f in found] == [
        ("CH999", Level.ERROR, f'settings.EXAMPLE["{key}"]')
    ]
    assert getattr(conf, key.lower()) == getattr(Example(), key.lower())
    assert 7 in (conf.count, conf.share)
    assert "expected" in found[0].what
    assert found[0].remedy


def test_an_unknown_key_is_answered_with_the_nearest_known_one() -> None:
    _conf, (finding,) = read({"COUNTT": 1})

    assert 'Did you mean "COUNT"?' in finding.remedy


def test_a_value_that_is_secret_is_never_quoted() -> None:
    _conf, (finding,) = read({"KEY": ["hunter22"]})

    assert "hunter22" not in str(finding)


def test_what_is_no_dict_is_one_finding() -> None:
    conf, (finding,) = read(["COUNT"])

    assert conf == Example()
    assert "not a dict" in finding.what


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({"DATABASE": "nowhere"}, "DATABASE"),
        ({"INGEST_EVERY_SECONDS": 0}, "INGEST_EVERY_SECONDS"),
        ({"INGEST_BATCH": 0}, "INGEST_BATCH"),
        ({"STALE_CLAIM_SECONDS": 5}, "STALE_CLAIM_SECONDS"),
        ({"REDACTED": ()}, "REDACTED"),
    ],
)
def test_an_impossible_entry_of_dlq_is_a_finding_with_code_ch020(raw, where) -> None:
    _conf, (finding,) = read_dlq_settings(raw)

    assert (finding.code, finding.where) == ("CH020", f'settings.DLQ["{where}"]')


def test_dlq_settings_follow_a_change_of_the_settings(settings) -> None:
    settings.DLQ = {"INGEST_BATCH": 7}
    assert dlq_settings().ingest_batch == 7
    settings.DLQ = {}
    assert dlq_settings().ingest_batch == 100


def test_without_a_key_the_check_says_that_bodies_are_in_clear(settings) -> None:
    settings.DLQ = {"RETENTION": {"replayed": "90 d"}}

    (message,) = check_deployment(None)

    assert (message.id, message.level) == ("dlq.CH022", 20)
    assert check_settings(None) == []  # Not at every command.


@pytest.mark.parametrize("keys", [["no key", "hunter22"], "hunter22", [b"hunter22"]])
def test_a_bad_key_is_an_error_that_does_not_quote_it(settings, keys) -> None:
    settings.DLQ = {"ENCRYPTION_KEYS": keys}

    (finding,) = findings()

    assert finding.level is Level.ERROR
    assert finding.code in {"CH020", "CH021"}
    assert "hunter22" not in str(check_settings(None))
    assert "no key" not in finding.what
    assert "hunter22" not in repr(dlq_settings())


def test_keys_without_cryptography_are_an_error_with_the_remedy(settings, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
    settings.DLQ = {"ENCRYPTION_KEYS": ["x"]}

    (message,) = check_settings(None)

    assert message.id == "dlq.CH021"
    assert "cryptography is not installed" in message.msg
    assert "pip install" in str(message.hint)


def test_a_good_key_is_no_finding(settings) -> None:
    from cryptography.fernet import Fernet

    settings.DLQ = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}

    assert findings() == []
