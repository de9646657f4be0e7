"""Policies of schedules: the row of the admin, over the settings, over the defaults."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from beat_leader import policies as module
from beat_leader.conf import read_beat_settings
from beat_leader.entry import Misfire, Policy
from beat_leader.models import SchedulePolicy
from beat_leader.policies import Policies, current_policies, policy_of, read_patterns

SETTINGS = {
    "reports.daily": {"MISFIRE": "all", "MOST": 5},
    "reports.*": {"MISFIRE": "skip", "GRACE_SECONDS": 600, "OVERLAP": False},
}


def test_the_first_pattern_that_fits_rules():
    policies = Policies(read_patterns(SETTINGS)[0])
    assert policies.of("reports.daily") == Policy(misfire=Misfire.ALL, most=5)
    assert policies.of("reports.weekly") == Policy(misfire=Misfire.SKIP, grace_seconds=600.0, overlap=False)
    assert policies.of("Reports.daily") == Policy()


def test_a_row_goes_before_the_settings_in_what_it_says():
    row = {"misfire": "latest", "grace_seconds": None, "overlap": True, "most": None}
    policies = Policies(read_patterns(SETTINGS)[0], {"reports.weekly": row})
    assert policies.of("reports.weekly") == Policy(misfire=Misfire.LATEST, grace_seconds=600.0, overlap=True)


def test_nonsense_in_a_row_is_as_not_said():
    policies = Policies((), {"a": {"misfire": "sometimes", "most": 0, "misfire_seconds": -1.0, "ping": "x"}})
    assert policies.of("a") == Policy(ping="x")


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"MISFIER": "skip"}, "unknown key 'MISFIER'"),
        ({"MISFIRE": "sometimes"}, "no such MISFIRE is possible"),
        ({"MOST": 0}, "no such MOST is possible"),
        ({"OVERLAP": "no"}, "'no' is a str"),
        ({"PING": 7}, "the value (hidden)"),
        ("skip", "is a str, not a dict"),
    ],
    ids=["unknown-key", "misfire", "most", "type", "secret", "no-dict"],
)
def test_what_is_wrong_in_the_settings_is_a_finding_and_spoils_nothing_else(said, what):
    conf, findings = read_beat_settings({"SCHEDULES": {"x": said, "y": {"MOST": 7}}})
    (finding,) = findings
    assert finding.code == "CH041"
    assert what in finding.what
    assert 'BEAT_LEADER["SCHEDULES"]["x"]' in finding.where
    policies = Policies(read_patterns(conf.schedules)[0])
    assert (policies.of("x"), policies.of("y").most) == (Policy(), 7)


@pytest.mark.django_db
def test_the_rows_of_the_admin_are_read_afresh_and_stay_in_force_while_nobody_answers(monkeypatch):
    monkeypatch.setattr(module, "_book", module._Book())
    SchedulePolicy.objects.create(schedule="reports.daily", misfire="skip", most=3)
    found = current_policies()
    assert found.of("reports.daily") == Policy(misfire=Misfire.SKIP, most=3)
    assert current_policies() is found
    SchedulePolicy.objects.all().delete()
    assert policy_of("reports.daily") == Policy()

    SchedulePolicy.objects.create(schedule="reports.daily", overlap=False)
    assert not policy_of("reports.daily").overlap

    def away():
        raise DatabaseError("away")

    monkeypatch.setattr(module, "_read_rows", away)
    assert not policy_of("reports.daily").overlap
