"""The page of unclassified errors tells which rules to write, to those who may see letters."""

from __future__ import annotations

import ast
import html
import re

import pytest
from django.urls import reverse
from django.utils import timezone

from dlq import unclassified as unclassified_module
from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from tests.helpers.dlq_letters import attempt, letter

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/dlq/deadletter/"
PAGE = f"{LIST}unclassified/"


def kept(error_class: str, *, verdict: str = "unknown", **fields) -> DeadLetter:
    failed = attempt(1, error_class=error_class, verdict=verdict)
    record = letter(
        **{"failed_at": timezone.now(), "reason": "unclassified", "attempts": (failed,), **fields}
    )
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


def page(client, address: str = PAGE) -> str:
    response = client.get(address)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def snippets(text: str) -> list[str]:
    return [
        html.unescape(each) for each in re.findall(r'<pre class="dlq-snippet"[^>]*>(.*?)</pre>', text, re.S)
    ]


def names_in(snippet: str) -> list[str]:
    (statement,) = ast.parse(snippet).body
    assert isinstance(statement, ast.Assign)
    return list(ast.literal_eval(statement.value)["CLASSIFY"])


def test_the_page_needs_the_view_permission(client, user_with) -> None:
    assert client.get(PAGE).status_code == 302
    user_with("replay_deadletter", "discard_deadletter", "view_payload")
    assert client.get(PAGE).status_code == 403
    assert client.post(PAGE).status_code == 403
    user_with("view_deadletter")
    assert client.get(PAGE).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_the_page_answers_to_get_only(client, user_with, method) -> None:
    user_with("view_deadletter")

    assert getattr(client, method)(PAGE).status_code == 405
    assert client.head(PAGE).status_code == 200


def test_the_list_links_to_the_page(client, user_with) -> None:
    user_with("view_deadletter")

    assert reverse("admin:dlq_deadletter_unclassified") == PAGE
    assert f'href="{PAGE}"' in page(client, LIST)
    assert f'href="{LIST}"' in page(client)


def test_classes_come_with_counts_tasks_snippets_and_a_command(client, user_with) -> None:
    for task in ("shop.a", "shop.b", "shop.b"):
        kept("acme.client.Busy", task_name=task)
    kept("acme.Early", reason="error")
    kept("acme.Known", reason="error", verdict="permanent")
    user_with("view_deadletter")

    text = page(client)

    assert [names_in(each) for each in snippets(text)] == [
        ["acme.client.Busy", "acme.Early"],
        ["acme.client.Busy"],
        ["acme.Early"],
    ]
    assert "<td>shop.b<br>shop.a</td>" in text
    assert "<code>manage.py hardening_explain acme.client.Busy</code>" in text
    assert "acme.Known" not in text


def test_the_link_of_a_class_lists_exactly_the_letters_that_were_counted(client, user_with) -> None:
    hostile = "a&b=c #<>\"'"
    for error_class in ("acme.Busy", "acme.Busy", hostile):
        kept(error_class)
    kept("acme.Busy", reason="error", verdict="transient")
    user_with("view_deadletter")

    links = re.findall(r'<a href="([^"]+)">(\d+) letters?</a>', page(client))

    assert [count for _address, count in links] == ["2", "1"]
    for address, count in links:
        listed = page(client, html.unescape(address))
        assert len(re.findall(r'<th class="field-task_name">', listed)) == int(count)


@pytest.mark.parametrize("name", ['x"><script>alert(1)</script>', "'}; import os #", "</pre><b>", "a\nb\\"])
def test_a_hostile_class_name_breaks_out_of_neither_page_nor_snippet(client, user_with, name) -> None:
    kept(name, task_name=name)
    user_with("view_deadletter")

    text = page(client)

    assert [names_in(each) for each in snippets(text)] == [[name], [name]]
    for tag in ("<script>alert", "<b>"):
        assert tag not in text
    assert "hardening_explain" not in text


def test_the_number_of_queries_does_not_grow_with_the_letters(
    client, user_with, django_assert_num_queries
) -> None:
    user_with("view_deadletter")
    kept("acme.Busy")
    # The session, the user, the user's and the groups' permissions, the two groupings.
    with django_assert_num_queries(6):
        page(client)

    for number in range(20):
        kept(f"acme.E{number}", task_name=f"task{number % 7}")

    with django_assert_num_queries(6):
        page(client)


def test_more_classes_than_are_listed_are_told(client, user_with, monkeypatch) -> None:
    monkeypatch.setattr(unclassified_module, "MOST_CLASSES", 2)
    for number in range(3):
        kept(f"acme.E{number}")
    user_with("view_deadletter")

    text = page(client)

    assert "Only the 2 classes with the most letters are listed." in text
    assert "acme.E2" not in text


def test_without_unclassified_errors_the_page_says_so_and_has_no_snippet(client, user_with) -> None:
    kept("acme.Known", reason="error", verdict="transient")
    user_with("view_deadletter")

    text = page(client)

    assert "Every error of the open letters is known to a rule." in text
    assert snippets(text) == []
