"""A policy in the database: one for each schedule, and no nonsense."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction

from beat_leader.models import SchedulePolicy
from beat_leader.models.names import key_of
from beat_leader.policies import COLUMNS
from tests.helpers.beat_stores import DATABASES, beat_database
from tests.helpers.dlq_databases import database_url


@pytest.fixture(params=DATABASES)
def alias(request, tmp_path, django_db_blocker, settings) -> Iterator[str]:
    url = database_url(request.param, request, tmp_path)
    with django_db_blocker.unblock(), beat_database(f"beat_{request.param}", url) as made:
        settings.BEAT_LEADER = {"DATABASE": made}
        SchedulePolicy.objects.all().delete()
        yield made


def test_each_schedule_has_one_policy_also_where_names_differ_in_case_only(alias) -> None:
    for name in ("Report", "report", "report "):
        policy = SchedulePolicy(schedule=name, misfire="", ping="")
        policy.full_clean()
        policy.save()

    with pytest.raises(ValidationError, match="policy already"):
        SchedulePolicy(schedule="Report").full_clean()
    with pytest.raises(DatabaseError), transaction.atomic(using=alias):
        SchedulePolicy(schedule="Report").save()
    given = SchedulePolicy.objects.using(alias).values(*COLUMNS)
    assert [set(row.values()) for row in given] == [{None}] * 3
    # Renamed, it is another schedule's.
    renamed = SchedulePolicy.objects.get(key=key_of("report "))
    renamed.schedule = "other"
    renamed.save(update_fields=["schedule"])
    SchedulePolicy(schedule="report ").full_clean()


def test_the_database_takes_no_nonsense(alias) -> None:
    for nonsense in (
        {"schedule": ""},
        {"misfire": "never"},
        {"most": 0},
        {"misfire_seconds": -1},
        {"grace_seconds": -0.1},
        {"overlap_seconds": 0},
    ):
        with pytest.raises(DatabaseError), transaction.atomic(using=alias):
            SchedulePolicy(**{"schedule": "a", **nonsense}).save()
        with pytest.raises(ValidationError):
            SchedulePolicy(**{"schedule": "a", **nonsense}).full_clean()

    SchedulePolicy(schedule="a", most=1, grace_seconds=0, misfire="all", overlap=False).save()
