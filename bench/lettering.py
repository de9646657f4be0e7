"""`python -m bench.lettering LETTERS GROUPS REQUESTS [ONLY]`: process of bench/letters.py; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import django

from bench.figures import percentile

WARM_UP = 2
MOST_CHOICES = 5
"""Of a filter with more choices so many of them, spread over all."""

_ITEMS = 100_000
_LETTERS, _GROUPS, _OPERATIONS = "/admin/dlq/deadletter/", "/admin/dlq/lettergroup/", "/admin/dlq/operation/"


def main(letters: int, groups: int, requests: int, only: str = "") -> list[dict[str, Any]]:
    """Make the letters if there are none, and measure."""
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from dlq.models import DeadLetter

    call_command("migrate", verbosity=0, skip_checks=True)
    rows: list[dict[str, Any]] = []
    if not DeadLetter.objects.exists():
        began = time.monotonic()
        call_command(
            "dlq_make_letters", letters=letters, groups=groups, seed=1, verbosity=0, stdout=sys.stderr
        )
        rows.append({"page": "making them", "made_seconds": round(time.monotonic() - began, 1)})
        _vacuum()
    user, _ = User.objects.get_or_create(
        username="bench", defaults={"is_staff": True, "is_superuser": True, "is_active": True}
    )
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    measure = _Measure(client, requests)
    for name, addresses in _pages(client):
        if only not in name:
            continue
        print(name, file=sys.stderr, flush=True)
        rows.append(measure.slowest(name, addresses))
    return rows


class _Measure:
    def __init__(self, client: Any, requests: int) -> None:
        self._client, self._requests = client, requests

    def slowest(self, name: str, addresses: Iterable[str]) -> dict[str, Any]:
        """The row of the address with the largest p95."""
        return max((self.row(name, address) for address in addresses), key=lambda row: float(row["p95"]))

    def row(self, name: str, address: str) -> dict[str, Any]:
        for _ in range(WARM_UP):
            self._get(address)
        walls, cpus = [], []
        for _ in range(self._requests):
            cpu, wall = time.process_time(), time.perf_counter()
            self._get(address)
            walls.append(1000 * (time.perf_counter() - wall))
            cpus.append(1000 * (time.process_time() - cpu))
        return {
            "page": name,
            "address": address.removeprefix("/admin/dlq/"),
            "requests": len(walls),
            "p50": round(percentile(walls, 0.5), 1),
            "p95": round(percentile(walls, 0.95), 1),
            "max": round(max(walls), 1),
            "cpu": round(percentile(cpus, 0.5), 1),
            "queries": self._queries(address),
        }

    def _queries(self, address: str) -> int:
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        with CaptureQueriesContext(connection) as queries:
            self._get(address)
        return len(queries)

    def _get(self, address: str) -> None:
        response = self._client.get(address)
        if response.status_code != 200:
            raise RuntimeError(f"{address}: {response.status_code}")


def _pages(client: Any) -> Iterable[tuple[str, list[str]]]:
    yield from _letter_pages(client)
    yield from _group_pages(client)
    yield from _operation_pages(client)


def _letter_pages(client: Any) -> Iterable[tuple[str, list[str]]]:
    from dlq.models import Attempt, DeadLetter

    one = DeadLetter.objects.order_by("failed_at")[DeadLetter.objects.count() // 2]
    yield "letters", [_LETTERS]
    for title, addresses in _filters(client, _LETTERS):
        yield f"letters by {title}", addresses
    yield "letters by group", [f"{_LETTERS}?group={pk}" for pk in _groups()]
    yield "letters by two filters", _pairs(client)
    yield (
        "letters in order",
        [f"{_LETTERS}?o={o}{number}" for o in ("", "-") for number in _sortable(client, _LETTERS)],
    )
    last = _last_page(client, _LETTERS)
    yield "letters, page 50", [f"{_LETTERS}?p={min(50, last)}"]
    yield "letters, last page", [f"{_LETTERS}?p={last}"]
    found = [one.task_id, one.delivery_key, str(one.pk), "nowhere"]
    yield "letters, search by id", [f"{_LETTERS}?q={each}" for each in found]
    yield "unclassified errors", [f"{_LETTERS}unclassified/"]
    most_tries = Attempt.objects.order_by("-number").first()
    assert most_tries is not None
    yield "one letter", [f"{_LETTERS}{pk}/change/" for pk in (one.pk, most_tries.letter_id)]


def _group_pages(client: Any) -> Iterable[tuple[str, list[str]]]:
    yield "groups", [_GROUPS]
    for title, addresses in _filters(client, _GROUPS):
        yield f"groups by {title}", addresses
    yield (
        "groups in order",
        [f"{_GROUPS}?o={o}{number}" for o in ("", "-") for number in _sortable(client, _GROUPS)],
    )
    yield "groups, last page", [f"{_GROUPS}?p={_last_page(client, _GROUPS)}"]
    yield "groups, search", [f"{_GROUPS}?q=card"]
    largest, median, smallest = _groups()
    facets = ("task_name", "error_class", "queue", "release", "worker")
    yield "other groupings", [f"{_GROUPS}by/{facet}/" for facet in facets]
    yield (
        "groups of a worker or release",
        [f"{_GROUPS}?worker=celery@made-up-01", f"{_GROUPS}?queue=made-up-io"],
    )
    for name, pk in (("largest", largest), ("median", median), ("smallest", smallest)):
        yield f"one group, the {name}", [f"{_GROUPS}{_quoted(pk)}/change/"]


def _operation_pages(client: Any) -> Iterable[tuple[str, list[str]]]:
    operation = _operation()
    address = f"{_OPERATIONS}{operation.pk}/change/"
    yield "operations", [_OPERATIONS]
    yield f"operation of {operation.total:,}", [address]
    states = ("waiting", "sent", "succeeded", "came_back", "not_sent", "lost")
    yield "its items by state", [f"{address}?items={state}" for state in states]
    yield "its items, from the middle", [f"{address}?from={operation.total // 2}"]


def _operation() -> Any:
    """One with outcomes of all kinds, some of them known."""
    from django.db.models import F
    from django.utils import timezone

    from dlq.models import DeadLetter, Operation, OperationItem
    from dlq.operations import control
    from dlq.operations.making import make_operation
    from dlq.operations.states import ItemState

    found = Operation.objects.first()
    if found is not None:
        return found
    source = {"kind": "filter", "lookups": {"state": "open"}}
    for _ in range(20):
        make_operation(letters=DeadLetter.objects.open(), by="bench", source=source, limit=1_000)
    made = make_operation(letters=DeadLetter.objects.open(), by="bench", source=source, limit=_ITEMS)
    control.start(made.pk, by="bench")
    items = OperationItem.objects.filter(operation_id=made.pk).annotate(turn=F("position") % 10)
    now = timezone.now()
    for turn, state in enumerate(
        (ItemState.SUCCEEDED, ItemState.CAME_BACK, ItemState.SENT, ItemState.NOT_SENT)
    ):
        settled = {} if state is ItemState.SENT else {"settled_at": now}
        verdict = {"verdict": "claimed"} if state is ItemState.NOT_SENT else {"sent_at": now}
        items.filter(turn=turn).update(state=state, **settled, **verdict)
    _vacuum()
    return made


def _vacuum() -> None:
    """As autovacuum does it in time."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _groups() -> list[str]:
    """The largest, the median and the smallest one."""
    from dlq.models import LetterGroup

    names = list(LetterGroup.objects.order_by("-letters", "pk").values_list("pk", flat=True))
    return [names[0], names[len(names) // 2], names[-1]]


def _filters(client: Any, address: str) -> Iterable[tuple[str, list[str]]]:
    """Each filter of a list, with the addresses of its choices."""
    changelist = client.get(address).context_data["cl"]
    for spec in changelist.filter_specs:
        choices = [str(choice["query_string"]) for choice in spec.choices(changelist)][1:]
        if choices:
            yield str(spec.title), [f"{address}{choice}" for choice in _spread(choices)]


def _spread(choices: list[str]) -> list[str]:
    step = max(1, (len(choices) - 1) / (MOST_CHOICES - 1))
    return [choices[round(number * step)] for number in range(min(len(choices), MOST_CHOICES))]


def _pairs(client: Any) -> list[str]:
    """A state with another filter: few letters are replaying, and many are open."""
    changelist = client.get(_LETTERS).context_data["cl"]
    found = []
    for state in ("open", "replaying"):
        for spec in changelist.filter_specs:
            choices = [str(choice["query_string"]) for choice in spec.choices(changelist)][1:]
            if "state__exact" not in spec.expected_parameters():
                found += [f"{_LETTERS}{choice}&state__exact={state}" for choice in choices[:1]]
    return found


def _sortable(client: Any, address: str) -> list[int]:
    changelist = client.get(address).context_data["cl"]
    from django.contrib.admin.templatetags.admin_list import result_headers

    # With actions the first column is that of the boxes.
    return [number for number, header in enumerate(result_headers(changelist)) if header["sortable"]]


def _last_page(client: Any, address: str) -> int:
    return int(client.get(address).context_data["cl"].paginator.num_pages)


def _quoted(pk: str) -> str:
    from django.contrib.admin.utils import quote

    return str(quote(pk))


if __name__ == "__main__":
    store, in_groups, asked = map(int, sys.argv[1:4])
    print(json.dumps(main(store, in_groups, asked, "".join(sys.argv[4:]))))
