"""The pages of groups show what broke, and let only those decide who may, one decision at a time."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dlq.admin import group_triage, paging
from dlq.groups import duty, triage
from dlq.groups.counting import count_new_letters
from dlq.groups.releases import note_release
from dlq.models import DeadLetter, LetterGroup, Operation, OperationItem
from dlq.sink import DatabaseSink
from tests.helpers.dlq_letters import attempt, letter

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/dlq/lettergroup/"
LETTERS = "/admin/dlq/deadletter/"
VIEW, TRIAGE, REPLAY = "view_deadletter", "triage_deadletter", "replay_deadletter"
VERBS = ("acknowledge", "snooze", "resolve", "reopen", "assign", "note")
FACETS = ("task_name", "error_class", "queue", "release", "worker")
EVIL = "<script>alert(1)</script>"
GIVEN: dict[str, dict[str, Any]] = {
    "acknowledge": {},
    "snooze": {"span": "1d"},
    "resolve": {},
    "reopen": {},
    "assign": {"owner": "ann"},
    "note": {"text": "see ticket 41"},
}


@pytest.fixture(autouse=True)
def _as_a_new_process(monkeypatch) -> None:
    """Pages count letters by themselves; when they do is not left to the tests before."""
    monkeypatch.setattr(duty, "_memory", duty._Memory())


@pytest.fixture
def untended(monkeypatch) -> None:
    """Pages count nothing."""
    monkeypatch.setattr("dlq.admin.groups.tend_lazily", lambda: None)


def stored(count: int = 1, *, cause: str = "declined", **fields) -> None:
    """Letters of one cause, not counted yet."""
    now = timezone.now()
    failed = attempt(1, message=cause, **{k: fields.pop(k) for k in ("error_class",) if k in fields})
    given = {"failed_at": now, "attempts": (failed,), **fields}
    for _ in range(count):
        DatabaseSink().keep(letter(**given))


def group_of(count: int = 1, **fields) -> LetterGroup:
    """The group of such letters."""
    before = set(LetterGroup.objects.values_list("pk", flat=True))
    stored(count, **fields)
    count_new_letters()
    found: LetterGroup = LetterGroup.objects.exclude(pk__in=before).get()
    return found


def groups_of(count: int) -> list[LetterGroup]:
    return [group_of(cause=f"cause {chr(97 + number) * 5}") for number in range(count)]


def page(client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def detail(group: LetterGroup) -> str:
    return f"{LIST}{group.pk}/change/"


def posted(client, verb: str, *groups: LetterGroup, follow: bool = True, **fields):
    """As the forms of the pages do it."""
    given = {"group": [f"{group.state}:{group.pk}" for group in groups], "back": "group", **fields}
    return client.post(f"{LIST}triage/{verb}/", given, follow=follow)


def hidden_fields(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text):
        found.setdefault(name, []).append(value.replace("&amp;", "&"))
    return found


def everything_of(group: LetterGroup) -> tuple:
    return LetterGroup.objects.values_list().get(pk=group.pk)


# Who may


@pytest.mark.parametrize("address", [LIST, "detail", *(f"{LIST}by/{facet}/" for facet in FACETS)])
def test_pages_need_the_permission_to_see_letters(client, user_with, address) -> None:
    group = group_of()
    address = detail(group) if address == "detail" else address
    user_with(TRIAGE, REPLAY, "view_lettergroup", "change_lettergroup")
    assert client.get(address).status_code == 403
    user_with(VIEW)
    assert client.get(address).status_code == 200


def test_who_may_only_see_is_shown_no_action(client, user_with) -> None:
    group = group_of()
    user_with(VIEW, "change_lettergroup", "delete_lettergroup", "add_lettergroup")

    listed, shown = page(client, LIST), page(client, detail(group))

    for sign in (
        "_selected_action",
        'name="action"',
        "/triage/",
        "/replay/",
        'class="addlink"',
        "deletelink",
    ):
        assert sign not in listed + shown
    assert "<form" not in shown.partition('id="content-main"')[2].partition('id="footer"')[0]


def test_who_may_decide_is_shown_decisions_and_who_may_replay_the_replay(client, user_with) -> None:
    group = group_of()
    user_with(VIEW, TRIAGE)
    shown = page(client, detail(group))
    assert all(f"/triage/{verb}/" in shown for verb in VERBS if verb != "reopen")
    assert "/triage/reopen/" not in shown  # It is open.
    assert "/replay/" not in shown
    assert 'name="replay"' not in shown
    assert "acknowledge_selected" in page(client, LIST)

    user_with(VIEW, REPLAY)
    shown = page(client, detail(group))
    assert f"{group.pk}/replay/" in shown
    assert "/triage/" not in shown


@pytest.mark.parametrize("permissions", [(VIEW, REPLAY), (TRIAGE, REPLAY)])
@pytest.mark.parametrize("verb", VERBS)
def test_a_forged_decision_is_forbidden_and_changes_nothing(client, user_with, verb, permissions) -> None:
    group = group_of()
    before = everything_of(group)
    user_with(*permissions)

    assert posted(client, verb, group, **GIVEN[verb]).status_code == 403
    assert client.get(f"{LIST}triage/{verb}/").status_code == 403

    assert everything_of(group) == before
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize("action", ["acknowledge_selected", "snooze_selected", "resolve_selected"])
def test_a_forged_list_action_is_forbidden(client, user_with, action) -> None:
    group = group_of()
    user_with(VIEW, REPLAY)

    for extra in ({}, {"index": "0"}, {"action": ["", action], "index": "1"}):
        fields = {"action": action, "_selected_action": [group.pk], "select_across": "0", **extra}
        assert client.post(LIST, fields).status_code == 403


@pytest.mark.parametrize("permissions", [(VIEW, TRIAGE), (REPLAY, TRIAGE)])
def test_a_forged_replay_is_forbidden(client, user_with, permissions) -> None:
    group = group_of()
    user_with(*permissions)

    assert client.post(f"{LIST}{group.pk}/replay/").status_code == 403
    # Nor may it be left to a release.
    assert posted(client, "resolve", group, in_release="9", replay="on").status_code == 403
    group.refresh_from_db()
    assert (group.state, group.replay_on_release, Operation.objects.count()) == ("open", False, 0)


def test_posts_need_a_csrf_token_and_decisions_a_post(client, user_with, django_user_model) -> None:
    from django.test import Client

    group = group_of()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(django_user_model.objects.create_superuser("root", password="x"))
    for address in (f"{LIST}triage/acknowledge/", f"{LIST}{group.pk}/replay/", LIST):
        assert strict.post(address, {"group": f"open:{group.pk}"}).status_code == 403

    user_with(VIEW, TRIAGE, REPLAY)
    for address in (f"{LIST}triage/acknowledge/", f"{LIST}{group.pk}/replay/"):
        assert client.get(address).status_code == 405
    assert client.post(f"{LIST}by/queue/").status_code == 405
    assert client.post(f"{LIST}triage/destroy/").status_code == 404
    assert client.get(f"{LIST}by/sealed/").status_code == 404


def test_a_group_cannot_be_added_edited_or_deleted_as_a_row(client, user_with) -> None:
    group = group_of()
    user_with(VIEW, TRIAGE, "change_lettergroup", "delete_lettergroup", "add_lettergroup")

    assert client.post(detail(group), {"fingerprint": "x"}).status_code == 403
    assert client.post(f"{LIST}{group.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.get(f"{LIST}add/").status_code == 403


def test_tasks_that_ask_for_a_permission_of_their_own_are_left_alone_or_hidden(
    client, user_with, settings
) -> None:
    settings.DLQ = {
        "TASK_PERMISSIONS": {
            "bill.*": "auth.add_user",
            "pay.*": {"permission": "auth.add_user", "hidden": True},
        }
    }
    free, seen, hidden = (group_of(task_name=name) for name in ("mail.send", "bill.write", "pay.out"))
    asked = {
        "action": "resolve_selected",
        "_selected_action": [free.pk, seen.pk, hidden.pk],
        "select_across": "0",
    }
    user_with(VIEW, TRIAGE, REPLAY)

    assert page(client, LIST).count('class="field-cause"') == 2
    assert "pay.out" not in page(client, LIST) + page(client, f"{LIST}by/task_name/")
    assert client.get(detail(hidden)).status_code == 302
    assert "<form" not in page(client, detail(seen)).partition('id="content-main"')[2].partition("footer")[0]
    assert hidden_fields(client.post(LIST, asked).content.decode())["group"] == [f"open:{free.pk}"]
    assert posted(client, "resolve", free, seen).status_code == 403
    assert client.post(f"{LIST}{seen.pk}/replay/").status_code == 403
    assert client.post(f"{LIST}{hidden.pk}/replay/").status_code == 302
    assert posted(client, "resolve", free, hidden).status_code == 200
    assert set(LetterGroup.objects.values_list("task_name", "state")) == {
        ("mail.send", "resolved"),
        ("bill.write", "open"),
        ("pay.out", "open"),
    }
    assert Operation.objects.count() == 0

    user_with(VIEW, TRIAGE, REPLAY, "add_user")
    assert page(client, LIST).count('class="field-cause"') == 3
    assert "/triage/resolve/" in page(client, detail(seen))


# Decisions


@pytest.mark.parametrize(
    ("verb", "fields", "expected", "logged"),
    [
        ("acknowledge", {}, {"state": "acknowledged"}, "Acknowledged."),
        ("snooze", {"span": "8h"}, {"state": "snoozed", "snoozed_release": ""}, "Snoozed until 20"),
        (
            "snooze",
            {"until": "2199-01-02T03:04"},
            {"state": "snoozed"},
            "Snoozed until 2199-01-02 03:04+00:00.",
        ),
        (
            "snooze",
            {"release": "2026.9"},
            {"state": "snoozed", "snoozed_release": "2026.9"},
            "Snoozed until release 2026.9 runs.",
        ),
        ("resolve", {}, {"state": "resolved", "resolved_release": ""}, "Resolved."),
        (
            "resolve",
            {"in_release": "2026.9"},
            {"state": "resolved", "resolved_release": "2026.9", "replay_on_release": False},
            "Resolved in release 2026.9.",
        ),
        (
            "resolve",
            {"in_release": "2026.9", "replay": "on"},
            {"state": "resolved", "replay_on_release": True},
            "Resolved in release 2026.9; its open letters are replayed once that runs.",
        ),
        ("assign", {"owner": "ann"}, {"state": "open", "owner": "ann"}, "Assigned to ann."),
        ("assign", {"owner": ""}, {"owner": ""}, "Assigned to nobody."),
        ("note", {"text": "ticket <41>"}, {"note": "ticket <41>"}, "Changed the note."),
    ],
    ids=lambda value: "-".join(value) or "none" if isinstance(value, dict) else None,
)
def test_each_decision_is_made_logged_and_told(client, user_with, verb, fields, expected, logged) -> None:
    group = group_of()
    user = user_with(VIEW, TRIAGE, REPLAY)

    response = posted(client, verb, group, **fields)

    assert response.redirect_chain == [(detail(group), 302)]
    assert "1 group: " in response.content.decode()
    group.refresh_from_db()
    assert {name: getattr(group, name) for name in expected} == expected
    assert group.state_by == ("" if verb in ("assign", "note") else user.get_username())
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (user, group.pk)
    assert entry.change_message.startswith(logged)
    assert entry.change_message in page(client, f"{LIST}{group.pk}/history/")


def test_a_group_is_reopened(client, user_with) -> None:
    group = group_of()
    triage.resolve([group.pk], by="ann")
    group.refresh_from_db()
    user_with(VIEW, TRIAGE)
    assert "/triage/reopen/" in page(client, detail(group))

    posted(client, "reopen", group)

    group.refresh_from_db()
    assert group.state == "open"
    assert LogEntry.objects.get().change_message == "Reopened."


def test_who_comes_second_is_told_and_changes_nothing(client, user_with) -> None:
    group = group_of()
    user_with(VIEW, TRIAGE)
    seen = hidden_fields(page(client, detail(group)))["group"][0]
    triage.resolve([group.pk], by="the faster one")
    before = everything_of(group)

    response = client.post(
        f"{LIST}triage/acknowledge/", {"group": seen, "back": "group"}, follow=True
    ).content.decode()

    assert (
        "Somebody was faster: the group is resolved now, by the faster one. Nothing was changed." in response
    )
    assert everything_of(group) == before
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize(
    ("verb", "fields", "told"),
    [
        ("snooze", {}, "Give one of them"),
        ("snooze", {"span": "1d", "release": "7"}, "Give one of them"),
        ("snooze", {"until": "2001-01-01T00:00"}, "that time is over"),
        ("snooze", {"until": "soon"}, "Enter a valid date/time."),
        ("snooze", {"release": "2026.1"}, "release 2026.1 has run already"),
        ("resolve", {"replay": "on"}, "needs the name of one"),
        ("note", {"text": "a\x00b"}, "Null characters are not allowed."),
        ("assign", {"owner": "x" * 256}, "at most 255 characters"),
    ],
)
def test_what_is_wrong_with_a_decision_is_told_and_nothing_changes(
    client, user_with, verb, fields, told
) -> None:
    note_release("2026.1")
    group = group_of()
    before = everything_of(group)
    user_with(VIEW, TRIAGE, REPLAY)

    response = posted(client, verb, group, **fields)
    text = response.content.decode()

    assert response.status_code == 200
    assert told in text
    assert "Nothing was changed." in text
    # It can be corrected there.
    assert hidden_fields(text)["group"] == [f"open:{group.pk}"]
    assert (everything_of(group), LogEntry.objects.count()) == (before, 0)


@pytest.mark.parametrize(
    "value", ["", "open", "open:", "open:no-such", "open:a\x00", "regret:x", "open:../x"]
)
def test_a_decision_that_names_no_group_is_told(client, user_with, value) -> None:
    group_of()
    user_with(VIEW, TRIAGE)

    response = client.post(f"{LIST}triage/acknowledge/", {"group": value}, follow=True)

    assert response.redirect_chain == [(LIST, 302)]
    assert "The selection names no groups. Nothing was changed." in response.content.decode()


@pytest.mark.parametrize(("verb", "state"), [("acknowledge", "acknowledged"), ("resolve", "resolved")])
def test_several_groups_are_decided_on_through_a_confirm_page(client, user_with, verb, state) -> None:
    wanted, done, other = groups_of(3)
    triage.acknowledge([done.pk], by="ann")
    triage.resolve([other.pk], by="ann")
    user_with(VIEW, TRIAGE)
    fields = {"action": f"{verb}_selected", "_selected_action": [wanted.pk, done.pk], "select_across": "0"}

    asked = client.post(f"{LIST}?task_name=shop.tasks.charge", fields).content.decode()
    assert LetterGroup.objects.filter(state="open").get() == wanted
    response = client.post(f"{LIST}triage/{verb}/", hidden_fields(asked), follow=True)

    assert ("1 group is acknowledged already" in asked) == (verb == "acknowledge")
    assert other.pk not in asked
    assert response.redirect_chain == [(f"{LIST}?task_name=shop.tasks.charge", 302)]
    changed = {wanted.pk} if verb == "acknowledge" else {wanted.pk, done.pk}
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == changed
    assert set(LetterGroup.objects.filter(pk__in=changed).values_list("state", flat=True)) == {state}


def test_several_groups_are_snoozed_until_a_release_and_those_that_changed_meanwhile_are_left_alone(
    client, user_with
) -> None:
    groups = groups_of(3)
    user_with(VIEW, TRIAGE)
    fields = {"action": "snooze_selected", "_selected_action": [groups[0].pk], "select_across": "1"}
    asked = hidden_fields(client.post(LIST, fields).content.decode())
    later = group_of(cause="a later one")
    triage.acknowledge([groups[1].pk, groups[2].pk], by="the faster one")

    text = client.post(f"{LIST}triage/snooze/", {**asked, "release": "9"}, follow=True).content.decode()

    assert "1 group: snoozed." in text
    assert "Somebody was faster with 2 groups, which were left as they are." in text
    groups[0].refresh_from_db()
    later.refresh_from_db()
    assert (groups[0].snoozed_release, later.state) == ("9", "open")


def test_one_confirmation_reaches_a_bounded_number_of_groups(client, user_with, monkeypatch) -> None:
    monkeypatch.setattr("dlq.admin.groups.MOST_AT_ONCE", 2)
    monkeypatch.setattr(group_triage, "MOST_AT_ONCE", 2)
    groups = groups_of(3)
    user_with(VIEW, TRIAGE)
    fields = {
        "action": "resolve_selected",
        "_selected_action": [each.pk for each in groups],
        "select_across": "0",
    }

    text = client.post(LIST, fields).content.decode()

    assert "One confirmation reaches 2 groups." in text
    assert len(hidden_fields(text)["group"]) == 2


def test_open_letters_become_an_operation_and_nothing_is_sent(client, user_with) -> None:
    group = group_of(3)
    group_of(cause="another")
    DeadLetter.objects.filter(pk=str(group.sample_id)).update(state="discarded", closed_at=timezone.now())
    user = user_with(VIEW, REPLAY)

    response = client.post(f"{LIST}{group.pk}/replay/", {"why": "fixed <in> 9"})

    operation = Operation.objects.get()
    assert response["Location"] == reverse("admin:dlq_operation_change", args=[operation.pk])
    assert (operation.state, operation.total, operation.created_by) == ("planned", 2, user.get_username())
    assert operation.source == {"kind": "group", "fingerprint": group.pk}
    assert operation.why == "fixed <in> 9"
    assert set(OperationItem.objects.values_list("letter__group_id", "letter__state")) == {(group.pk, "open")}
    assert str(operation.pk) in LogEntry.objects.get(object_id=group.pk).change_message


def test_a_group_without_open_letters_is_not_replayed(client, user_with) -> None:
    group = group_of()
    DeadLetter.objects.update(state="discarded", closed_at=timezone.now())
    user_with(VIEW, REPLAY)

    assert 'id="dlq-why"' not in page(client, detail(group))
    response = client.post(f"{LIST}{group.pk}/replay/", follow=True)

    assert "No letter of this group is open." in response.content.decode()
    assert Operation.objects.count() == 0
    assert client.post(f"{LIST}no-such/replay/").status_code == 302


# What is shown


def test_the_list_counts_what_came_by_itself_and_says_when_it_is_behind(
    client, user_with, monkeypatch
) -> None:
    stored(2)
    user_with(VIEW)
    assert '<strong>CardDeclined</strong> <span class="dlq-task">shop.tasks.charge</span>' in page(
        client, LIST
    )

    monkeypatch.setattr("dlq.admin.groups.tend_lazily", lambda: None)
    stored(1)
    assert "Some letters are not in a group yet" in page(client, LIST)
    assert "Some letters are not in a group yet" in page(client, detail(LetterGroup.objects.get()))
    count_new_letters()
    assert "Some letters are not in a group yet" not in page(client, LIST)


def test_an_empty_list_says_why(client, user_with, untended) -> None:
    user_with(VIEW)
    assert "There are no groups of dead letters." in page(client, LIST)
    assert "Nothing was counted yet." in page(client, f"{LIST}by/queue/")
    stored()
    assert "The first letters are being grouped." in page(client, LIST)
    count_new_letters()
    for query in ("state=resolved", "q=zebra", "owner=ann"):
        assert "No group fits these filters." in page(client, f"{LIST}?{query}")


@pytest.mark.parametrize("size", [10, 50])
def test_the_number_of_queries_of_the_list_is_that_of_a_page_of_one(
    client, user_with, untended, monkeypatch, size
) -> None:
    monkeypatch.setattr("dlq.admin.groups.LetterGroupAdmin.list_per_page", size)
    user_with(VIEW, TRIAGE)
    group_of()

    page(client, LIST)  # What a process asks once.

    def queries(address: str) -> int:
        with CaptureQueriesContext(connection) as statements:
            page(client, address)
        return len(statements)

    one = queries(LIST)
    groups_of(12)

    assert queries(LIST) == one <= 14
    assert queries(f"{LIST}?o=5&p=1" if size == 10 else LIST) == one


def test_no_page_counts_or_reads_all_letters(client, user_with, untended) -> None:
    group = group_of(30)
    user_with(VIEW, TRIAGE, REPLAY)
    addresses = (LIST, detail(group), *(f"{LIST}by/{facet}/" for facet in FACETS))

    def statements_of(address: str) -> list[str]:
        page(client, address)  # What a process asks once.
        with CaptureQueriesContext(connection) as statements:
            page(client, address)
        return [each["sql"] for each in statements]

    before = {address: statements_of(address) for address in addresses}
    stored(30)
    count_new_letters()

    table = connection.ops.quote_name(DeadLetter._meta.db_table)
    for address, seen in before.items():
        assert len(statements_of(address)) == len(seen) <= 20
        for sql in seen:
            if f"FROM {table}" in sql:
                assert "LIMIT" in sql, sql
                assert '"sealed"' not in sql, sql


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3),
        ("state=todo", 2),
        ("state=acknowledged", 1),
        ("state=no-such", 0),
        ("task_name=other.task", 1),
        ("owner=ann", 1),
        ("owner=", 2),
        ("queue=slow", 1),
        ("queue=payments&worker=w1%40host", 2),
        ("release=2026.3", 3),
        ("error_class=shop.errors.CardDeclined", 3),
        ("q=BBBBB", 1),
        ("q=other.task", 1),
    ],
)
def test_filters_and_search(client, user_with, query, count) -> None:
    first, _second = groups_of(2)
    group_of(task_name="other.task", queue="slow")
    triage.acknowledge([first.pk], by="x")
    triage.assign([first.pk], owner="ann", by="x")
    user_with(VIEW)

    text = page(client, f"{LIST}?{query}")

    assert text.count('class="field-cause"') == count
    assert "to do (2)" in text
    assert re.search(r'href="\?[^"]*task_name=other.task', text)


@pytest.mark.parametrize("column", range(1, 9))
def test_the_list_is_ordered_by_its_columns(client, user_with, column) -> None:
    groups_of(2)
    user_with(VIEW)

    assert page(client, f"{LIST}?o={column}").count('class="field-cause"') == 2
    assert page(client, f"{LIST}?o=-{column}").count('class="field-cause"') == 2


@pytest.mark.parametrize(
    "query",
    [
        "sample__sealed__contains=41",
        "members__sealed__regex=.",
        "members__error_message__contains=a",
        "note__contains=a",
        "state__in=open",
        "facets__value=a",
        "hours__letters__gt=1",
        "no_such_field=1",
        "state=%00",
        "task_name=%00",
        "owner=%00",
        "queue=%00",
    ],
)
def test_the_list_answers_no_question_but_those_of_its_filters(client, user_with, query) -> None:
    group_of()
    user_with(VIEW, TRIAGE)

    assert client.get(f"{LIST}?{query}").status_code == 400


def test_a_list_longer_than_is_counted_says_so(client, user_with, monkeypatch) -> None:
    groups_of(3)
    monkeypatch.setattr(paging, "MOST_LISTED", 2)
    user_with(VIEW)

    assert "Only the first 2 groups are counted and listed." in page(client, LIST)


def test_figures_are_drawn_and_told_in_words_without_script_or_style(client, user_with) -> None:
    now = timezone.now()
    group = group_of(3)
    stored(2, failed_at=now - timedelta(hours=3))
    stored(4, failed_at=now - timedelta(days=3))
    count_new_letters()
    user_with(VIEW, TRIAGE)

    listed, shown = page(client, LIST), page(client, detail(group))

    words = "5 letters in the last 24 hours; most in one hour: 3, in the running hour."
    assert f'role="img" aria-label="{words}"' in listed
    assert f"<title>{words}</title>" in listed
    assert f"<p>{words}</p>" in shown
    assert "9 letters in the last 7 days; most in 24 hours: 5, from " in shown
    assert shown.count("<rect") == 4
    for text in (listed, shown):
        own = text.partition('id="content-main"')[2].partition('id="footer"')[0]
        assert " style=" not in own
        assert "<script" not in own.partition('id="changelist-filter"')[0].partition('id="django-admin')[0]
        assert "onclick" not in own


def test_the_page_of_a_group_shows_where_a_sample_and_the_newest_letters(client, user_with) -> None:
    group = group_of(2, worker="w7@host", release="2026.7", queue="slow")
    triage.snooze([group.pk], by="ann", release="2026.9")
    triage.note([group.pk], by="ann", text="see ticket 41")
    user_with(VIEW)

    text = page(client, detail(group))

    for shown in ("w7@host", "2026.7", "slow", "shop.tasks.charge", "shop.errors.CardDeclined"):
        assert f'<th scope="row">{shown}</th>' in text
    assert "Traceback (most recent call last):" in text
    assert "Until release 2026.9 runs" in text
    assert ", by ann</p>" in text
    assert "see ticket 41" in text
    for each in DeadLetter.objects.all():
        assert f"{LETTERS}{each.pk}/change/" in text


def test_a_group_whose_letters_are_gone_is_still_shown(client, user_with) -> None:
    group = group_of()
    DeadLetter.objects.all().delete()
    user_with(VIEW, TRIAGE, REPLAY)

    text = page(client, detail(group))

    assert "The sample letter is gone." in text
    assert "No letter of this group is kept any more." in text
    assert client.get(f"{LIST}no-such/change/").status_code == 302
    assert client.get(f"{LIST}%00/change/").status_code in (302, 404)


def test_text_from_tasks_and_people_is_escaped_everywhere(client, user_with) -> None:
    evil = attempt(1, message=EVIL, traceback=EVIL, error_class=EVIL, worker=EVIL)
    group = group_of(attempts=(evil,), task_name=EVIL, queue=EVIL, worker=EVIL, release=EVIL)
    # As if the scrubbing had let it through.
    LetterGroup.objects.update(title=EVIL, place=EVIL, owner=EVIL, note=EVIL, state_by=EVIL)
    LetterGroup.objects.update(state="resolved", resolved_release=EVIL)
    user_with(VIEW, TRIAGE, REPLAY)
    asked = {"action": "snooze_selected", "_selected_action": [group.pk], "select_across": "0"}

    for text in (
        page(client, LIST),
        page(client, detail(group)),
        page(client, f"{LIST}?queue={EVIL}&owner={EVIL}"),
        client.post(LIST, asked).content.decode(),
        *(page(client, f"{LIST}by/{facet}/") for facet in FACETS),
        page(client, f"{LETTERS}?group={group.pk}"),
        page(client, f"{LETTERS}{group.sample_id}/change/"),
    ):
        assert EVIL not in text
        assert "&lt;script&gt;" in text


@pytest.mark.parametrize("facet", FACETS)
def test_other_groupings_lead_to_groups_and_letters(client, user_with, facet) -> None:
    group_of(2)
    done = group_of(3, cause="another")
    triage.resolve([done.pk], by="ann")
    user_with(VIEW)
    assert f"{LIST}by/{facet}/" in page(client, LIST)

    text = page(client, f"{LIST}by/{facet}/")
    links = [each.replace("&amp;", "&") for each in re.findall(r'<td[^>]*><a href="([^"]*)">', text)]

    assert '<td class="dlq-n">5</td>' in text
    assert [page(client, each).count('class="field-cause"') for each in links[:2]] == [2, 1]
    assert bool(links[2:]) == (facet in ("task_name", "error_class", "queue"))
    for each in links[2:]:
        assert page(client, each).count('class="field-task_name"') == 5


def test_letters_lead_to_their_group_and_groups_to_their_letters(client, user_with, untended) -> None:
    group = group_of(2)
    other = group_of(cause="another")
    stored(1, cause="not counted")
    user_with(VIEW)

    text = page(client, f"{LETTERS}?group={group.pk}&state__exact=open")
    assert text.count('class="field-task_name"') == 2
    assert f"{other.pk}" not in text
    assert f"{LETTERS}?group={group.pk}&amp;state__exact=open" in page(client, detail(group))
    assert detail(group) in page(client, f"{LETTERS}{group.sample_id}/change/")
    uncounted = DeadLetter.objects.get(group=None)
    assert "/lettergroup/1-" not in page(client, f"{LETTERS}{uncounted.pk}/change/")
    for query in ("group__title=x", "group__members__sealed__contains=4", "group=%00"):
        assert client.get(f"{LETTERS}?{query}").status_code == 400
