"""dlq_groups and dlq_tend: what they print and change, their exit codes; a resolve that replays by itself."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from django.core.management import CommandError, call_command
from kombu import Queue

from dlq.groups.duty import tend
from dlq.groups.releases import note_release
from dlq.models import DeadLetter, LetterGroup, Operation
from dlq.sink import DatabaseSink
from tests.helpers.dlq_letters import attempt, letter

pytestmark = pytest.mark.django_db(transaction=True)


def run(*args: str) -> str:
    out = StringIO()
    call_command(*args, stdout=out, stderr=StringIO())
    return out.getvalue()


def run_json(*args: str) -> Any:
    return json.loads(run(*args, "--json"))


@pytest.fixture
def group() -> LetterGroup:
    for number in (1, 2):
        DatabaseSink().keep(letter(attempts=(attempt(1, message=f"order {number} declined"),)))
    assert run_json("dlq_tend")["letters"] == 2
    return LetterGroup.objects.get()


def test_groups_are_listed_shown_and_added_up(group) -> None:
    (row,) = run_json("dlq_groups", "list", "--state", "todo", "--order", "letters")
    assert (row["fingerprint"], row["letters"], row["open"]) == (group.pk, 2, 2)
    assert run_json("dlq_groups", "list", "--state", "resolved") == []
    assert "order # declined" in run("dlq_groups", "list")
    shown = run_json("dlq_groups", "show", group.pk[:8])
    assert (shown["facets"]["queue"], len(shown["newest"])) == ({"payments": 2}, 2)
    assert run_json("dlq_groups", "by", "queue")["rows"][0]["todo"] == 1
    assert "2 letters in 1 groups" in run("dlq_groups", "by", "release")


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (("acknowledge",), "acknowledged"),
        (("snooze", "--until", "2999-01-01T08:00"), "snoozed"),
        (("snooze", "--release", "2"), "snoozed"),
        (("resolve",), "resolved"),
        (("resolve", "--in-release", "2", "--replay"), "resolved"),
        (("assign", "--owner", "ann"), "open"),
        (("note", "--text", "see the wiki"), "open"),
    ],
)
def test_what_is_said_of_a_group_is_kept(group, said, state) -> None:
    assert run_json("dlq_groups", said[0], group.pk, *said[1:]) == {"changed": 1, "given": 1}

    assert LetterGroup.objects.get().state == state


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (("show", "nothing"), "there is no group"),
        (("reopen", "{pk}"), "not in a state for this"),
        (("snooze", "{pk}", "--until", "soon"), "is no time"),
        (("snooze", "{pk}", "--until", "2001-01-01T08:00"), "is over"),
        (("resolve", "{pk}", "--replay"), "needs the name of one"),
    ],
)
def test_what_cannot_be_done_is_an_error(group, said, problem) -> None:
    with pytest.raises(CommandError, match=problem):
        run("dlq_groups", *(each.format(pk=group.pk) for each in said))


def test_a_group_resolved_in_a_release_is_replayed_by_itself_once_that_runs(group, monkeypatch) -> None:
    app = Celery("release", broker=f"memory://{uuid4()}", set_as_current=False)
    app.conf.task_queues = [Queue("payments")]
    monkeypatch.setattr("dlq.operations.making.celery_app", lambda: app, raising=False)
    run("dlq_groups", "resolve", group.pk, "--in-release", "2", "--replay")
    assert tend().replays == []

    note_release("2")

    (operation,) = [Operation.objects.get(pk=pk) for pk in tend().replays]
    assert tend().replays == []
    assert (operation.total, operation.source["fingerprint"], operation.state) == (2, group.pk, "running")
    assert operation.created_by == LetterGroup.objects.get().state_by
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"open"}


def test_regroup_moves_letters_of_another_version_and_says_how_many(group) -> None:
    DeadLetter.objects.update(fingerprint="0-old", group_id="0-old")
    LetterGroup.objects.filter(pk=group.pk).update(fingerprint="0-old")

    assert run_json("dlq_regroup")["moved"] == 2

    assert DeadLetter.objects.filter(group_id=group.pk, fingerprint=group.pk).count() == 2
    assert "0 letters have a new fingerprint" in run("dlq_regroup")
