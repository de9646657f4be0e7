"""The admin restores, purges and exports for those who may, and keeps guarded tasks from all others."""

from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType

from dlq.discard import discard
from dlq.models import DeadLetter, OperationItem
from dlq.sink import DatabaseSink
from tests.helpers.dlq_letters import body_of, letter

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/dlq/deadletter/"
VIEW, DISCARD, PURGE, PAYLOAD = "view_deadletter", "discard_deadletter", "purge_deadletter", "view_payload"
REPLAY, EDIT = "replay_deadletter", "edit_deadletter"


def kept(**fields) -> DeadLetter:
    record = letter(**fields)
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


def archived(**fields) -> DeadLetter:
    row = kept(**fields)
    discard([row.pk], by="test", reason="known")
    return row


def selected(action: str, *rows: DeadLetter, **fields) -> dict:
    return {
        "action": f"{action}_selected",
        "_selected_action": [str(row.pk) for row in rows],
        "select_across": "0",
        "confirmed": "yes",
        **fields,
    }


def content(response) -> str:
    parts = response.streaming_content if response.streaming else [response.content]
    return b"".join(parts).decode()


@pytest.mark.parametrize("action", ["restore", "purge"])
def test_a_forged_post_is_forbidden_and_changes_nothing(client, user_with, action) -> None:
    row = archived()
    user_with(VIEW, PAYLOAD, REPLAY, PURGE if action == "restore" else DISCARD)

    for response in (
        client.post(f"{LIST}{row.pk}/{action}/", {"confirmed": "yes", "count": "1"}),
        client.get(f"{LIST}{row.pk}/{action}/"),
        client.post(LIST, selected(action, row, count="1")),
        client.post(LIST, selected(action, row, count="1", index="0")),
    ):
        assert response.status_code == 403

    row.refresh_from_db()
    assert (row.state, LogEntry.objects.count()) == ("discarded", 0)
    assert f"{row.pk}/{action}/" not in content(client.get(f"{LIST}{row.pk}/change/"))


def test_discarded_letters_are_restored_with_one_log_entry_each(client, user_with) -> None:
    rows = [archived(), archived()]
    user_with(VIEW, DISCARD)
    assert f"{rows[0].pk}/restore/" in content(client.get(f"{LIST}{rows[0].pk}/change/"))

    page = content(client.post(LIST, selected("restore", *rows, confirmed="")))
    assert "Open these letters again?" in page
    response = client.post(LIST, selected("restore", *rows, reason="too soon"), follow=True)

    assert "2 letters were restored." in content(response)
    assert DeadLetter.objects.open().count() == 2
    assert (
        list(LogEntry.objects.values_list("action_flag", "change_message"))
        == [(CHANGE, "Restored: too soon")] * 2
    )


def test_restoring_says_that_a_newer_letter_is_in_the_way(client, user_with) -> None:
    record = letter()
    DatabaseSink().keep(record)
    old = DeadLetter.objects.get()
    discard([old.pk], by="test", reason="")
    DatabaseSink().keep(record)
    user_with(VIEW, DISCARD)

    response = client.post(f"{LIST}{old.pk}/restore/", {"confirmed": "yes"}, follow=True)

    assert "1 letter was left alone (a newer letter of the same work" in content(response)
    old.refresh_from_db()
    assert old.state == "discarded"


def test_purging_needs_the_count_typed_in(client, user_with) -> None:
    rows = [archived(), archived(), kept()]
    user = user_with(VIEW, PURGE)

    for wrong in ("", "3", "1", "many"):
        response = client.post(LIST, selected("purge", *rows, count=wrong))
        assert response.status_code == 200
        assert 'role="alert"' in content(response)
    assert "2 letters would be deleted. Nothing was." in content(
        client.post(LIST, selected("purge", *rows, count="3"))
    )
    assert (DeadLetter.objects.count(), LogEntry.objects.count()) == (3, 0)

    response = client.post(LIST, selected("purge", *rows, count="2"), follow=True)

    assert "2 letters were deleted for good." in content(response)
    assert DeadLetter.objects.get().pk == rows[2].pk
    assert set(LogEntry.objects.values_list("user", "action_flag", "object_id")) == {
        (user.pk, DELETION, str(row.pk)) for row in rows[:2]
    }


def test_the_page_of_a_purged_letter_leads_back_to_the_list(client, user_with) -> None:
    row = archived()
    user_with(VIEW, PURGE)

    response = client.post(f"{LIST}{row.pk}/purge/", {"confirmed": "yes", "count": "1"})

    assert (response.status_code, response["Location"]) == (302, LIST)


def test_export_needs_the_permission_to_view_payloads_for_arguments(client, user_with) -> None:
    row = kept(body=body_of(41, "hunter22", note="harmless"))
    user_with(VIEW)
    where, asked = f"{LIST}export/?q={row.pk}", {"confirmed": "yes", "form": "jsonl"}

    page = content(client.get(where))
    assert 'name="payload"' not in page
    assert client.post(where, {**asked, "payload": "on"}).status_code == 403
    plain = content(client.post(where, asked))
    user_with(VIEW, REPLAY)
    assert client.post(LIST, selected("export", row, form="csv", payload="on")).status_code == 403
    user_with(VIEW, PAYLOAD)
    shown = content(client.post(where, {**asked, "payload": "on"}))

    assert "harmless" not in plain
    assert json.loads(shown)["arguments"]["note"] == '"harmless"'
    assert "hunter22" not in plain + shown


def test_export_streams_what_the_filters_allow(client, user_with) -> None:
    for number in range(120):
        kept(task_name="shop.a" if number % 2 else "shop.b")
    user_with(VIEW, REPLAY)
    first = DeadLetter.objects.filter(task_name="shop.a").latest("failed_at")

    response = client.post(
        f"{LIST}?task_name=shop.a", selected("export", first, form="csv", select_across="1")
    )

    assert response.streaming
    assert re.fullmatch(r'attachment; filename="dead-letters-.*\.csv"', response["Content-Disposition"])
    rows = list(csv.DictReader(io.StringIO(content(response))))
    assert (len(rows), {row["task"] for row in rows}) == (60, {"shop.a"})
    assert client.get(f"{LIST}export/?p=99").status_code == 302  # As the list answers.


def test_who_may_only_view_sees_no_action_and_exports_what_the_filters_allow(client, user_with) -> None:
    kept(task_name="shop.a"), kept(task_name="shop.b")
    user_with(VIEW, PAYLOAD)

    listed = content(client.get(f"{LIST}?task_name=shop.a"))
    assert 'name="action"' not in listed
    assert 'name="_selected_action"' not in listed
    [where] = re.findall(r'href="(/admin/dlq/deadletter/export/[^"]*)"', listed)
    rows = csv.DictReader(
        io.StringIO(content(client.post(html.unescape(where), {"confirmed": "yes", "form": "csv"})))
    )

    assert [row["task"] for row in rows] == ["shop.a"]
    user_with(PAYLOAD, REPLAY)
    assert client.get(where).status_code == 403


def test_a_download_without_permission_to_view_is_forbidden(client, user_with) -> None:
    row = kept()
    user_with(PAYLOAD, PURGE)

    assert client.post(LIST, selected("export", row, form="csv")).status_code == 403


@pytest.fixture
def guarded(settings):
    """Letters of a task that only some may act on, and of one that only some may see."""
    settings.DLQ = {
        "TASK_PERMISSIONS": {
            "billing.*": "auth.handle_billing",
            "secret.*": {"permission": "auth.handle_secrets", "hidden": True},
        }
    }
    user = ContentType.objects.get(app_label="auth", model="user")
    for codename in ("handle_billing", "handle_secrets"):
        Permission.objects.create(codename=codename, name=codename, content_type=user)
    return kept(task_name="billing.charge"), kept(task_name="secret.job"), kept(task_name="shop.mail")


def test_letters_of_hidden_tasks_are_not_there_for_others(client, user_with, guarded) -> None:
    _, secret, _ = guarded
    user_with(VIEW, REPLAY, DISCARD)

    listed = content(client.get(LIST)) + content(client.get(f"{LIST}unclassified/"))
    assert "billing.charge" in listed
    assert "secret.job" not in listed
    assert client.get(f"{LIST}{secret.pk}/change/").status_code == 302
    assert str(secret.pk) not in content(client.post(LIST, selected("export", *guarded, form="csv")))
    user_with(VIEW, "handle_secrets")
    assert "secret.job" in content(client.get(LIST))


def test_letters_of_guarded_tasks_are_acted_on_by_nobody_else(client, user_with, guarded) -> None:
    billing, secret, free = guarded
    user_with(VIEW, REPLAY, DISCARD, PURGE, PAYLOAD, EDIT)

    shown = content(client.get(f"{LIST}{billing.pk}/change/"))
    assert not any(f"{billing.pk}/{name}/" in shown for name in ("replay", "copy", "discard", "edit"))
    assert client.get(f"{LIST}{billing.pk}/edit/").status_code == 403
    client.post(LIST, selected("replay", *guarded, pace="unlimited"))
    client.post(f"{LIST}{billing.pk}/replay/", {"confirmed": "yes", "pace": "unlimited"})
    assert set(OperationItem.objects.values_list("letter_id", flat=True)) == {free.pk}
    client.post(f"{LIST}{billing.pk}/discard/", {"confirmed": "yes"})
    client.post(LIST, selected("discard", *guarded))
    assert set(DeadLetter.objects.open().values_list("pk", flat=True)) == {billing.pk, secret.pk}

    user_with(VIEW, DISCARD, "handle_billing")
    client.post(LIST, selected("discard", *guarded))
    assert set(DeadLetter.objects.open().values_list("pk", flat=True)) == {secret.pk}
