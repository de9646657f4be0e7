"""Made-up letters are whole ones, and stay apart from real ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum

from dlq.fingerprint import fingerprint_of
from dlq.groups.counting import count_new_letters
from dlq.models import DeadLetter, GroupFacet, GroupHour, LetterGroup
from dlq.rows import body_digest, task_id_of_replay
from dlq.sink import DatabaseSink
from tests.helpers.dlq_databases import KINDS, letters_in
from tests.helpers.dlq_letters import letter


@pytest.fixture(params=KINDS)
def store(request, settings, tmp_path, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as alias:
        settings.DLQ = {"DATABASE": alias}
        yield alias


def make(letters: int, groups: int, **options) -> None:
    call_command("dlq_make_letters", letters=letters, groups=groups, seed=3, verbosity=0, **options)


def test_made_up_letters_are_as_a_capture_leaves_them(store) -> None:
    make(300, 40)

    rows = list(DeadLetter.objects.all())
    assert len(rows) == 300
    assert Counter(row.state for row in rows)["open"] > 150
    for row in rows:
        record = row.record()
        attempts = list(row.attempts.all())
        assert body_digest(record) == row.body_digest
        assert task_id_of_replay(record) == row.replay_task_id
        assert json.loads(record.payload.body)[0]
        assert record.payload.headers["id"] == row.task_id
        named = fingerprint_of(
            task_name=row.task_name,
            reason=row.reason,
            error_class=row.error_class,
            message=row.error_message,
            traceback=attempts[0].traceback,
        )
        assert named.value == row.fingerprint == row.group_id


def test_made_up_letters_are_counted_in_their_groups(store) -> None:
    make(300, 40)

    found = dict(LetterGroup.objects.values_list("pk", "letters"))
    assert found == Counter(DeadLetter.objects.values_list("group_id", flat=True))
    assert len(found) == 40
    assert GroupHour.objects.aggregate(n=Sum("letters"))["n"] == 300
    assert GroupFacet.objects.filter(facet="queue").aggregate(n=Sum("letters"))["n"] == 300
    assert count_new_letters().letters == 0


def test_made_up_letters_do_not_come_among_real_ones_unless_it_is_said(store) -> None:
    make(10, 5)
    DatabaseSink().keep(letter())

    with pytest.raises(CommandError, match="--beside-real"):
        make(10, 5)
    call_command("dlq_make_letters", letters=10, groups=5, seed=4, beside_real=True, verbosity=0)

    assert DeadLetter.objects.count() == 21
