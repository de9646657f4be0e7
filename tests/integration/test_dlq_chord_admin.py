"""The page that runs a chord again as a whole: what was found, who may, and what is noted."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command

from dlq.models import DeadLetter, Operation
from dlq.operations import chord_rerun
from hardening.core.chord_members import KeptChord
from tests.contract.test_dlq_chord_reruns import Workers, member
from tests.helpers.admin_app import use_app
from tests.helpers.operating import kept

pytestmark = pytest.mark.django_db(transaction=True)

VIEW, REPLAY = "view_deadletter", "replay_deadletter"


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    found = Workers()
    found.chord = KeptChord(size=2, succeeded={1: member(1)})
    monkeypatch.setattr(chord_rerun, "chord_members_of", lambda app=None: found)
    use_app(monkeypatch, Celery("admin", broker=f"memory://{uuid4()}", set_as_current=False))
    return found


def page_of(letter: DeadLetter, view: str = "chord") -> str:
    return f"/admin/dlq/deadletter/{letter.pk}/{view}/"


def text_of(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    text: str = response.content.decode()
    return text


def test_who_may_replay_sees_the_members_and_runs_the_whole_chord(client, user_with) -> None:
    row = kept(member(0))
    user_with(VIEW)
    assert page_of(row) not in text_of(client.get(page_of(row, "change")))
    assert client.get(page_of(row)).status_code == client.post(page_of(row)).status_code == 403
    user = user_with(VIEW, REPLAY)
    assert page_of(row) in text_of(client.get(page_of(row, "change")))

    shown = text_of(client.get(page_of(row)))
    assert "succeeded; it runs once more" in shown
    assert "dead letter; it is replayed" in shown
    call_command("dlq_replay", str(row.pk), "--chord", "--plan", "--json", stdout=(out := StringIO()))
    planned = json.loads(out.getvalue())
    assert [each["standing"] for each in planned["members"]] == ["dead letter", "succeeded"]
    assert not Operation.objects.exists()
    told = client.post(page_of(row), {"why": "the price list is mended"}, follow=True)

    operation = Operation.objects.get()
    assert (operation.state, operation.created_by) == ("running", user.username)
    assert operation.why == "the price list is mended"
    said = text_of(told)
    assert "a chord of 2 members that failed; 1 of them had succeeded" in said
    assert "Its chord runs again as a whole" in said
    noted = LogEntry.objects.get(object_id=str(row.pk))
    assert f"in operation {operation.pk}" in noted.get_change_message()


def test_a_chord_that_lacks_a_member_or_has_one_of_a_task_that_is_withheld_is_refused(
    client, user_with, workers, settings
) -> None:
    row = kept(member(0))
    user_with(VIEW, REPLAY)
    settings.DLQ = {"TASK_PERMISSIONS": {"shop.other": "auth.add_user"}}
    other = member(1)
    object.__setattr__(other, "task_name", "shop.other")
    workers.chord = KeptChord(size=2, succeeded={1: other})
    assert client.post(page_of(row)).status_code == 403
    workers.chord = KeptChord(size=2)

    shown = text_of(client.post(page_of(row)), 409)

    assert "0 succeeded, 1 are dead letters, 1 are missing" in shown
    with pytest.raises(CommandError, match="1 are missing"):
        call_command("dlq_replay", str(row.pk), "--chord")
    assert not Operation.objects.exists()
