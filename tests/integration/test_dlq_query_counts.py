"""Pages ask the same number of questions however much the store holds, and count nothing to its end."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.admin.utils import quote
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dlq.models import Attempt, DeadLetter, GroupFacet, GroupHour, LetterGroup, Operation, OperationItem
from dlq.operations.making import make_operation

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS, GROUPS, OPERATIONS = "/admin/dlq/deadletter/", "/admin/dlq/lettergroup/", "/admin/dlq/operation/"
_COUNTS_ROWS = re.compile(r"\bCOUNT\(", re.IGNORECASE)
_OF_ALL_LETTERS = re.compile(
    r"\bCOUNT\((?:(?!\bLIMIT\b).)*FROM \"dlq_deadletter\"(?:(?!\bLIMIT\b).)*$", re.IGNORECASE | re.DOTALL
)

Pages = dict[str, str]


def fill(letters: int, groups: int) -> Pages:
    """A store of that size, and the addresses of its pages."""
    for model in (OperationItem, Operation, GroupFacet, GroupHour, LetterGroup, Attempt, DeadLetter):
        model.objects.all().delete()
    call_command("dlq_make_letters", letters=letters, groups=groups, seed=7, verbosity=0)
    letter = DeadLetter.objects.filter(state="open").order_by("-failed_at")[0]
    group = LetterGroup.objects.order_by("-letters")[0]
    operation = make_operation(
        letters=DeadLetter.objects.open(), by="x", source={"kind": "filter", "lookups": {"state": "open"}}
    )
    facets = ("task_name", "error_class", "queue", "release", "worker")
    return {
        "letters": LETTERS,
        "letters, by state": f"{LETTERS}?state__exact=open",
        "letters, by task": f"{LETTERS}?task_name={letter.task_name}",
        "letters, by queue": f"{LETTERS}?queue={letter.queue}",
        "letters, by error class": f"{LETTERS}?error_class={letter.error_class}",
        "letters, by reason": f"{LETTERS}?reason={letter.reason}",
        "letters, by verdict": f"{LETTERS}?verdict={letter.verdict}",
        "letters, by age": f"{LETTERS}?age=over_week",
        "letters, by two": f"{LETTERS}?state__exact=open&queue={letter.queue}",
        "letters, by group": f"{LETTERS}?group={group.pk}",
        "letters, by id": f"{LETTERS}?q={letter.pk}",
        "letter": f"{LETTERS}{letter.pk}/change/",
        "groups": GROUPS,
        "groups, by state": f"{GROUPS}?state=open",
        "groups, by queue": f"{GROUPS}?queue={letter.queue}",
        "groups, by text": f"{GROUPS}?q=made",
        "group": f"{GROUPS}{quote(group.pk)}/change/",
        **{f"by {facet}": f"{GROUPS}by/{facet}/" for facet in facets},
        "operations": OPERATIONS,
        "operation": f"{OPERATIONS}{operation.pk}/change/",
    }


@pytest.fixture
def statements(admin_client, monkeypatch) -> Callable[[str], list[str]]:
    """What a page asks the database, when a process shows it for the second time."""
    # A worker does it, and a page in its stead at most every two seconds.
    monkeypatch.setattr("dlq.admin.groups.tend_lazily", lambda: None)

    def asked(address: str) -> list[str]:
        assert admin_client.get(address).status_code == 200
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(address)
        return [str(query["sql"]) for query in queries.captured_queries]

    return asked


def test_no_page_asks_more_of_two_hundred_rows_than_of_ten(statements) -> None:
    few = {name: len(statements(address)) for name, address in fill(10, 5).items()}

    many = {name: len(statements(address)) for name, address in fill(200, 60).items()}

    assert many == few
    assert max(few.values()) <= 20


def test_no_page_counts_letters_without_a_bound(statements) -> None:
    asked = {name: statements(address) for name, address in fill(60, 10).items()}

    unbounded = {
        name: found
        for name, all_of_it in asked.items()
        if (found := [sql for sql in all_of_it if _OF_ALL_LETTERS.search(sql)])
    }

    assert unbounded == {}
    # That it would be found: these pages do count.
    assert all(
        any(_COUNTS_ROWS.search(sql) for sql in asked[name]) for name in ("letters", "groups", "operation")
    )


def test_an_unbounded_count_is_recognised() -> None:
    bounded = 'SELECT COUNT(*) FROM (SELECT "id" FROM "dlq_deadletter" WHERE "state" = 1 LIMIT 5001) subquery'

    assert not _OF_ALL_LETTERS.search(bounded)
    assert _OF_ALL_LETTERS.search('SELECT COUNT(*) AS "__count" FROM "dlq_deadletter" WHERE "state" = 1')
