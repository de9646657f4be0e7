"""After fingerprints are made in another way, letters move to their new groups, and counts and people's words
with them: each letter is counted once at any time, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Count, Sum
from django.utils import timezone

from dlq.groups import regrouping, triage
from dlq.groups.counting import count_new_letters
from dlq.groups.regrouping import Regrouped, regroup
from dlq.groups.states import GroupState
from dlq.models import Attempt, DeadLetter, GroupFacet, GroupHour, LetterGroup
from dlq.models.group import FACETS
from dlq.rows import attempt_rows, letter_row
from tests.helpers.dlq_databases import KINDS, letters_in
from tests.helpers.dlq_letters import FAILED_AT, attempt, letter

OLD = "0-old"
IN_A_BUNDLE = """Traceback (most recent call last):
  File "/bundle/shop/tasks.py", line 3, in charge
    post(card)
  File "/bundle/client/api.py", line 3, in post
    raise Refused
client.Refused
"""


@pytest.fixture(params=KINDS)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in(request.param, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


def kept(count: int = 1, *, message: str = "declined", old: str = OLD, **fields: Any) -> str:
    """Letters of one cause, with the fingerprint of another version; returns that of this one."""
    rows = [
        letter_row(letter(attempts=(attempt(message=message),), **fields), keys=(), now=FAILED_AT)
        for _ in range(count)
    ]
    value = rows[0].fingerprint
    for row in rows:
        row.fingerprint = old or row.fingerprint
    DeadLetter.objects.bulk_create(rows)
    return value


def counted() -> dict[str, int]:
    count_new_letters()
    return sizes()


def sizes() -> dict[str, int]:
    return dict(LetterGroup.objects.values_list("pk", "letters"))


def counts_are_right() -> bool:
    """For each group: its letters, hours and facets say the same as the rows of letters."""
    members = dict(
        DeadLetter.objects.filter(group__isnull=False).order_by().values_list("group").annotate(n=Count("pk"))
    )
    hours = dict(GroupHour.objects.values_list("group").annotate(n=Sum("letters")))
    facets = {
        facet: dict(GroupFacet.objects.filter(facet=facet).values_list("group").annotate(n=Sum("letters")))
        for facet in FACETS
    }
    return all(each == members for each in (sizes(), hours, *facets.values()))


def test_letters_move_with_their_counts_and_what_people_said(alias) -> None:
    new = kept(5, message="order 12 declined", failed_at=FAILED_AT - timedelta(hours=3), worker="w1")
    kept(2, message="order 13 declined", worker="w2")
    assert counted() == {OLD: 7}
    triage.acknowledge([OLD], by="ada")
    triage.assign([OLD], owner="ada", by="ada")
    triage.note([OLD], text="asked the bank", by="ada")

    assert regroup(batch=3) == Regrouped(letters=7, moved=7, groups=1)

    group = LetterGroup.objects.get()
    assert (group.pk, group.letters, group.title) == (new, 7, "order # declined")
    assert (group.state, group.state_by, group.owner) == ("acknowledged", "ada", "ada")
    assert (group.note, group.first_seen_at) == ("asked the bank", FAILED_AT - timedelta(hours=3))
    assert getattr(group.sample, "worker", None) == "w2"
    assert counts_are_right()
    assert regroup() == Regrouped()


def test_one_group_becomes_two_and_two_become_one(alias) -> None:
    declined, expired = kept(2, message="declined"), kept(3, message="expired")
    kept(1, message="expired", old="0-other")
    assert counted() == {OLD: 5, "0-other": 1}
    triage.acknowledge([OLD], by="ada")
    triage.note(["0-other"], text="call them", by="bob")

    regroup(batch=2)

    assert sizes() == {declined: 2, expired: 4}
    assert set(LetterGroup.objects.values_list("pk", "state", "note")) == {
        (declined, "acknowledged", ""),
        # Of two states the one that needs people more; no word is lost.
        (expired, "open", "call them"),
    }
    assert counts_are_right()


def test_letters_that_came_since_do_not_hide_what_was_said_before(alias) -> None:
    new = kept(2)
    count_new_letters()
    triage.resolve([OLD], by="ada")
    kept(1, old="", failed_at=timezone.now() + timedelta(seconds=5))
    assert counted() == {OLD: 2, new: 1}

    regroup()

    group = LetterGroup.objects.get()
    assert (group.pk, group.letters, group.state) == (new, 3, GroupState.REGRESSED)
    assert counts_are_right()


def test_what_was_counted_of_letters_that_are_gone_stays_counted(alias) -> None:
    new = kept(3)
    assert counted() == {OLD: 3}
    DeadLetter.objects.filter(pk=DeadLetter.objects.order_by("pk")[0].pk).delete()

    regroup()

    assert sizes() == {new: 3}
    assert GroupHour.objects.get().letters == 3
    assert not LetterGroup.objects.filter(pk=OLD).exists()


def test_letters_that_nobody_counted_yet_get_their_fingerprint_too(alias) -> None:
    new = kept(2)

    assert regroup().moved == 2

    assert counted() == {new: 2}


def test_one_that_dies_in_between_leaves_right_counts_and_the_next_goes_on(alias, monkeypatch) -> None:
    new = kept(6)
    count_new_letters()
    let_go, calls = regrouping._let_go, []

    def dies(*args: Any) -> None:
        let_go(*args)
        calls.append(args)
        if len(calls) == 2:
            raise SystemExit

    monkeypatch.setattr(regrouping, "_let_go", dies)
    with pytest.raises(SystemExit):
        regroup(batch=2)
    assert sizes() == {OLD: 4, new: 2}
    assert counts_are_right()

    regroup(batch=2)

    assert sizes() == {new: 6}
    assert counts_are_right()


def test_after_a_change_of_the_settings_all_letters_are_looked_at(alias, settings) -> None:
    record = letter(attempts=(attempt(traceback=IN_A_BUNDLE),))
    row = letter_row(record, keys=(), now=FAILED_AT)
    DeadLetter.objects.bulk_create([row])
    Attempt.objects.bulk_create(attempt_rows(record.attempts, letter_id=row.pk))
    count_new_letters()
    assert LetterGroup.objects.get().place == "api:post"

    settings.DLQ = {"DATABASE": alias, "PROJECT_PACKAGES": ["shop"]}

    assert regroup() == Regrouped()
    assert regroup(everything=True) == Regrouped(letters=1, moved=1, groups=1)
    assert LetterGroup.objects.get().place == "shop.tasks:charge"
    assert counts_are_right()
