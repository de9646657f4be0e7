"""The admin shows letters without their secrets and acts only for those who may."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from celery import Celery
from cryptography.fernet import Fernet
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from django.utils import timezone
from kombu import Queue

from dlq.admin import discarding, letters, paging
from dlq.admin.distinct import distinct_values
from dlq.models import DeadLetter, Operation
from dlq.sink import DatabaseSink
from hardening.core.letter import Canvas
from tests.helpers.admin_app import use_app
from tests.helpers.dlq_letters import attempt, body_of, letter, with_payload

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/dlq/deadletter/"
VIEW, REPLAY, DISCARD, PAYLOAD = "view_deadletter", "replay_deadletter", "discard_deadletter", "view_payload"


@pytest.fixture
def broker(monkeypatch):
    """A broker in memory: what was sent to a queue."""
    app = Celery("admin", broker=f"memory://{uuid4()}", set_as_current=False)
    app.conf.task_queues = [Queue("payments"), Queue("slow")]
    use_app(monkeypatch, app)

    def sent(queue: str = "payments") -> list:
        found = []
        with app.connection() as connection:
            bound = Queue(queue)(connection.default_channel)
            bound.declare()
            while message := bound.get(no_ack=True):
                found.append(message)
        return found

    sent()
    return sent


def kept(**fields) -> DeadLetter:
    record = letter(**{"failed_at": timezone.now(), **fields})
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


def page(client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def detail(row: DeadLetter) -> str:
    return f"{LIST}{row.pk}/change/"


def confirmed(operation: str, *rows: DeadLetter, **fields) -> dict:
    return {
        "action": f"{operation}_selected",
        "_selected_action": [str(row.pk) for row in rows],
        "select_across": "0",
        "confirmed": "yes",
        **fields,
    }


def test_the_list_needs_the_view_permission(client, user_with) -> None:
    user_with(REPLAY)
    assert client.get(LIST).status_code == 403
    user_with(VIEW)
    assert client.get(LIST).status_code == 200


@pytest.mark.parametrize(
    ("permissions", "replay_shown", "discard_shown"),
    [((VIEW,), False, False), ((VIEW, REPLAY), True, False), ((VIEW, DISCARD), False, True)],
)
def test_actions_and_buttons_are_those_of_the_users_permissions(
    client, user_with, permissions, replay_shown, discard_shown
) -> None:
    row = kept()
    user_with(*permissions)

    listed, shown = page(client, LIST), page(client, detail(row))

    for name, is_shown in (("replay", replay_shown), ("copy", replay_shown), ("discard", discard_shown)):
        assert (f'value="{name}_selected"' in listed, f"{row.pk}/{name}/" in shown) == (is_shown, is_shown)
    for forbidden in ("delete_selected", 'class="addlink"', 'class="deletelink"', 'name="_save"'):
        assert forbidden not in listed + shown


@pytest.mark.parametrize("operation", ["replay", "copy", "discard"])
def test_a_forged_post_is_forbidden_and_changes_nothing(client, user_with, broker, operation) -> None:
    row = kept()
    user_with(VIEW, PAYLOAD, REPLAY if operation == "discard" else DISCARD)

    for response in (
        client.post(f"{LIST}{row.pk}/{operation}/", {"confirmed": "yes"}),
        client.get(f"{LIST}{row.pk}/{operation}/"),
        client.post(LIST, confirmed(operation, row)),
        client.post(LIST, confirmed(operation, row, index="0")),
        client.post(
            LIST, {**confirmed(operation, row), "action": ["", f"{operation}_selected"], "index": "1"}
        ),
    ):
        assert response.status_code == 403

    row.refresh_from_db()
    assert (row.state, broker(), LogEntry.objects.count()) == ("open", [], 0)
    assert not Operation.objects.exists()


def test_a_permission_to_act_without_the_permission_to_view_allows_nothing(client, user_with, broker) -> None:
    row = kept()
    user_with(REPLAY)

    assert client.post(f"{LIST}{row.pk}/replay/", {"confirmed": "yes"}).status_code == 403
    assert broker() == []


@pytest.mark.parametrize("operation", ["replay", "copy", "discard"])
def test_get_and_an_unconfirmed_post_change_nothing(client, user_with, broker, operation) -> None:
    row = kept()
    user_with(VIEW, REPLAY, DISCARD)

    for response in (
        client.get(f"{LIST}{row.pk}/{operation}/?confirmed=yes"),
        client.post(f"{LIST}{row.pk}/{operation}/"),
        client.post(LIST, confirmed(operation, row, confirmed="", index="0")),
    ):
        assert response.status_code == 200
        assert 'name="confirmed" value="yes"' in response.content.decode()

    row.refresh_from_db()
    assert (row.state, broker(), LogEntry.objects.count()) == ("open", [], 0)
    assert not Operation.objects.exists()


def test_a_post_without_a_csrf_token_is_forbidden(user_with, broker, django_user_model) -> None:
    from django.test import Client

    row = kept()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(django_user_model.objects.create_superuser("root", password="x"))

    assert strict.post(f"{LIST}{row.pk}/replay/", {"confirmed": "yes"}).status_code == 403
    assert strict.post(LIST, confirmed("replay", row)).status_code == 403
    assert broker() == []


def test_letters_are_discarded_with_a_reason(client, user_with) -> None:
    rows = [kept() for _ in range(2)]
    user = user_with(VIEW, DISCARD)

    client.post(LIST, confirmed("discard", *rows, reason="customer <gone>"))

    assert set(DeadLetter.objects.values_list("state", "closed_by", "discard_reason")) == {
        ("discarded", user.get_username(), "customer <gone>")
    }
    assert LogEntry.objects.count() == 2
    assert {entry.change_message for entry in LogEntry.objects.all()} == {"Discarded: customer <gone>"}


def test_letters_in_the_wrong_state_are_skipped_and_counted(client, user_with, broker) -> None:
    rows = [kept() for _ in range(3)]
    user_with(VIEW, REPLAY, DISCARD)
    client.post(LIST, confirmed("discard", rows[0]))

    shown = client.post(LIST, confirmed("replay", *rows, confirmed="", index="0")).content.decode()
    response = client.post(LIST, confirmed("discard", *rows), follow=True)

    assert "1 letter will be skipped because of its state:\ndiscarded 1." in shown
    assert "2 letters were discarded." in response.content.decode()
    assert "1 letter was left alone because of its state (discarded: 1)." in response.content.decode()


def test_all_that_the_filters_allow_is_discarded_but_nothing_stored_after_the_question(
    client, user_with
) -> None:
    wanted = [kept(queue="payments") for _ in range(3)]
    other = kept(queue="other")
    user_with(VIEW, DISCARD)
    asked = client.post(
        f"{LIST}?queue=payments", confirmed("discard", wanted[0], confirmed="", index="0", select_across="1")
    ).content.decode()
    later = kept(queue="payments")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked))

    client.post(f"{LIST}?queue=payments", {**fields, "as_of": fields["as_of"].replace("&#x2B;", "+")})

    assert "<strong>3 letters</strong>" in asked
    assert {row.pk for row in DeadLetter.objects.discarded()} == {row.pk for row in wanted}
    assert {row.pk for row in DeadLetter.objects.open()} == {other.pk, later.pk}


def test_one_confirmation_discards_a_bounded_number_the_oldest_first(client, user_with, monkeypatch) -> None:
    monkeypatch.setattr(discarding, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(letters, "DISCARD", replace(discarding.DISCARD, most=2))
    now = timezone.now()
    rows = [kept(failed_at=now - timedelta(minutes=minute)) for minute in range(3)]
    user_with(VIEW, DISCARD)

    asked = client.post(LIST, confirmed("discard", *rows, confirmed="", index="0")).content.decode()
    client.post(LIST, confirmed("discard", *rows))

    assert "reaches the oldest 2 letters" in asked
    assert DeadLetter.objects.open().get().pk == rows[0].pk


def test_the_confirm_page_says_what_will_happen(client, user_with) -> None:
    kept(queue="a", routing_key="a")
    rows = [kept(queue="b", canvas=Canvas(chord="shop.tasks.total")), *DeadLetter.objects.filter(queue="a")]
    user_with(VIEW, REPLAY)

    text = client.post(LIST, confirmed("replay", *rows, confirmed="", index="0")).content.decode()

    assert "<strong>2 letters</strong>" in text
    assert "<td>shop.tasks.charge</td><td>a</td><td>1</td>" in text
    assert "member of a chord" in text
    assert 'name="queue"' in text


def test_text_from_tasks_is_escaped_everywhere(client, user_with) -> None:
    evil = "<script>alert(1)</script>"
    row = kept(
        body=body_of(evil, note=evil),
        queue=evil,
        attempts=(attempt(1, message=evil, traceback=evil, error_class=evil, worker=evil),),
        canvas=Canvas(chain=(evil,)),
        headers={"tenant": evil},
        worker=evil,
        argument_names=(evil,),
    )
    user_with(VIEW, REPLAY, PAYLOAD)

    for text in (page(client, LIST), page(client, detail(row)), page(client, f"{LIST}{row.pk}/replay/")):
        assert evil not in text
        assert "&lt;script&gt;" in text


def test_secrets_are_on_no_page_even_for_those_who_may_see_the_payload(client, user_with) -> None:
    row = kept(
        body=body_of(
            41,
            "hunter22",
            card_number="4111111111111111",
            note="echo hunter22",
            url="https://x/?token=t0k3nvalue",
        )
    )
    user_with(VIEW, REPLAY, DISCARD, PAYLOAD)

    text = page(client, detail(row)) + page(client, LIST) + page(client, f"{LIST}{row.pk}/replay/")

    for secret in ("hunter22", "4111111111111111", "t0k3nvalue"):
        assert secret not in text
    assert "order_id" in text
    assert "card_number" in text
    assert "[redacted]" in text


def test_arguments_need_the_payload_permission(client, user_with) -> None:
    row = kept(body=body_of("visible-argument"), headers={"tenant": "visible-header"})
    user_with(VIEW)
    hidden = page(client, detail(row))
    user_with(VIEW, PAYLOAD)
    shown = page(client, detail(row))

    for text in ("visible-argument", "visible-header"):
        assert text not in hidden
        assert text in shown


def test_a_payload_that_cannot_be_decrypted_is_explained_on_the_page(client, user_with, settings) -> None:
    settings.DLQ = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
    row = kept()
    assert b"hunter22" not in bytes(row.sealed)
    user_with(VIEW, PAYLOAD)
    assert "order_id" in page(client, detail(row))

    for keys in ([], [Fernet.generate_key().decode()], ["no key"]):
        settings.DLQ = {"ENCRYPTION_KEYS": keys}
        assert "ENCRYPTION_KEYS" in page(client, detail(row))


def test_a_pickled_body_is_never_unpickled(client, user_with) -> None:
    record = with_payload(
        letter(failed_at=timezone.now()),
        content_type="application/x-python-serialize",
        body=b"cos\nsystem\n(S'x'\ntR.",
    )
    DatabaseSink().keep(record)
    user_with(VIEW, PAYLOAD)

    text = page(client, detail(DeadLetter.objects.get()))

    assert "only JSON is decoded" in text


def test_attempts_are_shown_newest_first(client, user_with) -> None:
    row = kept()
    user_with(VIEW)

    text = page(client, detail(row))

    assert text.index("declined at attempt 2") < text.rindex("declined at attempt 1")
    assert '<pre class="dlq-text">Traceback' in text


def test_a_member_of_a_chord_is_shown_with_a_warning(client, user_with) -> None:
    row = kept(canvas=Canvas(group="g", chord="shop.tasks.total"))
    user_with(VIEW)

    assert "is not completed by a replay" in page(client, detail(row))


def test_a_letter_links_to_the_one_it_replays_and_to_those_that_failed_again(client, user_with) -> None:
    first = kept()
    second = kept(delivery_key=first.delivery_key, replay_number=1, replay_of=str(first.pk))
    orphan = kept(replay_of=str(uuid4()))
    user_with(VIEW)

    assert detail(second) in page(client, detail(first))
    assert detail(first) in page(client, detail(second))
    assert "(deleted)" in page(client, detail(orphan))


@pytest.mark.parametrize("field", ["task_id", "delivery_key", "root_id", "pk"])
def test_search_finds_whole_ids_only(client, user_with, field) -> None:
    row = kept(task_id="the-task", delivery_key="the-key", root_id="the-root")
    kept()
    user_with(VIEW)
    value = str(getattr(row, field))

    assert page(client, f"{LIST}?q={value}").count("/change/?") == 1
    assert "/change/?" not in page(client, f"{LIST}?q={value[:-1]}")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("state__exact=open", 2),
        ("state__exact=discarded", 0),
        ("reason=time_limit", 1),
        ("task_name=other.task", 1),
        ("queue=", 1),
        ("error_class=shop.errors.CardDeclined", 2),
        ("verdict=transient", 1),
        ("verdict=", 1),
        ("verdict=unknown", 0),
        ("age=hour", 1),
        ("age=over_week", 1),
    ],
)
def test_filters(client, user_with, query, count) -> None:
    kept(reason="time_limit", task_name="other.task", queue="", failed_at=timezone.now() - timedelta(days=8))
    kept(attempts=(attempt(1, verdict="transient", rule="http.status 503"),))
    user_with(VIEW)

    assert page(client, f"{LIST}?{query}").count('class="action-checkbox"') in (0, count)
    assert len(re.findall(r'<th class="field-task_name">', page(client, f"{LIST}?{query}"))) == count


def test_filters_offer_every_reason_and_verdict_that_there_is(client, user_with) -> None:
    kept(reason="max_age", attempts=(attempt(1, verdict="transient"),))
    kept(reason="unclassified")
    user_with(VIEW)

    text = page(client, LIST)

    for choice in ("reason=max_age", "reason=unclassified", "verdict=transient", "verdict=unknown"):
        assert f'href="?{choice}"' in text


def test_each_attempt_is_shown_with_its_verdict_and_rule(client, user_with) -> None:
    row = kept(
        attempts=(
            attempt(1, verdict="transient", rule="http.status 503"),
            attempt(2, verdict="unknown"),
            attempt(3),
            attempt(4, verdict="<i>", rule="<b>"),
        )
    )
    user_with(VIEW)

    text = page(client, detail(row))

    assert text.index("<p>unknown</p>") < text.index("<p>transient by http.status 503</p>")
    assert "<p>&lt;i&gt; by &lt;b&gt;</p>" in text
    assert " by " not in text.partition("Attempt 3")[2].partition("Attempt 2")[0]


def test_distinct_values_come_in_one_query_and_are_bounded(django_assert_num_queries) -> None:
    for queue in ("b", "a", "b", "c"):
        kept(queue=queue)

    with django_assert_num_queries(1):
        assert distinct_values(DeadLetter.objects.all(), "queue") == ["a", "b", "c"]
    assert distinct_values(DeadLetter.objects.all(), "queue", limit=2) == ["a", "b"]
    assert distinct_values(DeadLetter.objects.filter(queue__gt="a"), "queue") == ["b", "c"]
    assert distinct_values(DeadLetter.objects.none(), "queue") == []


def test_a_list_longer_than_is_counted_says_so(client, user_with, monkeypatch) -> None:
    for _ in range(3):
        kept()
    monkeypatch.setattr(paging, "MOST_LISTED", 2)
    user_with(VIEW)

    assert "Only the first 2 letters are counted and listed." in page(client, LIST)


def test_a_letter_that_does_not_exist_is_no_error(client, user_with) -> None:
    user_with(VIEW, REPLAY)

    assert client.get(f"{LIST}{uuid4()}/replay/").status_code == 302
    assert client.get(f"{LIST}not-an-id/change/").status_code == 302


def test_the_detail_cannot_be_saved_or_deleted(client, user_with) -> None:
    row = kept()
    user_with(VIEW, REPLAY, DISCARD, PAYLOAD, "change_deadletter", "delete_deadletter", "add_deadletter")

    assert client.post(detail(row), {"state": "replayed"}).status_code == 403
    assert client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.get(f"{LIST}add/").status_code == 403


def test_addresses_are_named() -> None:
    pk = uuid4()
    assert reverse("admin:dlq_deadletter_replay", args=[pk]) == f"{LIST}{pk}/replay/"


@pytest.mark.parametrize(
    "query",
    [
        "sealed__contains=41",
        "sealed__regex=.",
        "sealed__startswith=7b",
        "error_message__contains=declined",
        "claim_token__isnull=1",
        "replay_of__sealed__contains=41",
        "replays__sealed__regex=.",
        "attempts__traceback__contains=a",
        "state__regex=.",
        "task_name__startswith=s",
        "no_such_field=1",
        "id__in=1",
        "\x00=1",
    ],
)
@pytest.mark.parametrize("codenames", [(VIEW,), (VIEW, PAYLOAD)])
def test_the_list_answers_no_question_but_those_of_its_filters(client, user_with, query, codenames) -> None:
    kept()
    user_with(*codenames)

    assert client.get(f"{LIST}?{query}").status_code == 400


@pytest.mark.parametrize(
    "query", ["state__exact=open", "o=6", "p=1", "all=", "q=x", "e=1", "age=day", "age=x"]
)
def test_the_list_still_answers_the_questions_of_its_own_links(client, user_with, query) -> None:
    kept()
    user_with(VIEW)

    assert client.get(f"{LIST}?{query}").status_code == 200


@pytest.mark.parametrize(
    "field", ["task_name", "queue", "error_class", "reason", "verdict", "age", "state__exact"]
)
def test_a_nul_in_a_filter_is_refused_before_a_database_sees_it(client, user_with, field) -> None:
    kept()
    user_with(VIEW)

    assert client.get(f"{LIST}?{field}=%00").status_code == 400


def test_a_nul_in_a_reason_is_stored_and_logged_as_text(client, user_with) -> None:
    row = kept()
    user_with(VIEW, DISCARD)

    assert client.post(LIST, confirmed("discard", row, reason="a\x00b")).status_code == 302

    row.refresh_from_db()
    assert (row.state, row.discard_reason) == ("discarded", "a\\x00b")
    # A NUL here is refused by PostgreSQL, after the letter has changed.
    assert LogEntry.objects.get().change_message == "Discarded: a\\x00b"


@pytest.mark.parametrize("queue", ["paymnets", "payments\x00", "<script>"])
def test_a_queue_that_nobody_knows_is_told_on_the_confirm_page_and_nothing_changes(
    client, user_with, broker, queue
) -> None:
    row = kept()
    user_with(VIEW, REPLAY)

    for address, fields in (
        (f"{LIST}{row.pk}/replay/", {"confirmed": "yes", "queue": queue}),
        (LIST, confirmed("replay", row, queue=queue)),
    ):
        response = client.post(address, fields)
        text = response.content.decode()
        assert response.status_code == 200
        assert '<ul class="errorlist" id="dlq-queue_error"><li>the Celery app knows no queue' in text
        assert 'aria-describedby="dlq-queue_helptext dlq-queue_error"' in text
        assert 'name="confirmed" value="yes"' in text
        assert "<script>" not in text.partition('class="errorlist"')[2].partition("</ul>")[0]

    row.refresh_from_db()
    assert (row.state, broker(), LogEntry.objects.count()) == ("open", [], 0)
    assert not Operation.objects.exists()


@pytest.mark.parametrize("operation", ["replay", "discard"])
@pytest.mark.parametrize("extra", [{}, {"index": "0"}, {"confirmed": ""}, {"select_across": "1"}])
def test_a_selection_that_names_no_letter_changes_nothing(
    client, user_with, broker, operation, extra
) -> None:
    row = kept()
    user_with(VIEW, REPLAY, DISCARD)
    fields = {**confirmed(operation, row), "_selected_action": [str(row.pk), "no-id\x00"], **extra}

    response = client.post(LIST, fields, follow=True)

    assert response.status_code == 200
    assert "The selection names no letters." in response.content.decode()
    row.refresh_from_db()
    assert (row.state, broker(), LogEntry.objects.count()) == ("open", [], 0)
    assert not Operation.objects.exists()


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((1, 2), None),
        ((2, 3), "1 earlier attempt is not kept."),
        ((60, 61), "59 earlier attempts are not kept."),
    ],
)
def test_attempts_that_are_not_kept_are_counted(client, user_with, numbers, told) -> None:
    row = kept(attempts=tuple(map(attempt, numbers)))
    user_with(VIEW)

    text = page(client, detail(row))

    assert ("not kept" in text) == (told is not None)
    assert (told or "") in text
