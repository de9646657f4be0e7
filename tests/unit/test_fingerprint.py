"""A fingerprint stays while the cause stays and changes with it; it never raises and never takes long."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlq.fingerprint import VERSION, Fingerprint, fingerprint_of
from dlq.fingerprint.frames import read_traceback
from dlq.fingerprint.project import module_of
from dlq.fingerprint.scrub import scrub
from tests.data.fingerprints.score import records_of, score

DOCS = Path(__file__).parents[2] / "docs" / "explanation" / "groups.md"
LEAST_F1 = 0.95
MEGABYTE = 1_000_000

CHARGE = """Traceback (most recent call last):
  File "/app/shop/tasks.py", line 12, in charge
    return pay(order["card"])
           ^^^^^^^^^^^^^^^^^^
  File "/app/shop/cards.py", line 40, in pay
    return client.post(card)
           ^^^^^^^^^^^^^^^^^
  File "/usr/local/lib/python3.12/site-packages/client/api.py", line 9, in post
    raise Refused(f"card {card} refused")
client.errors.Refused: card 17 refused
"""
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def of(traceback: str = CHARGE, **fields: Any) -> Fingerprint:
    given: dict[str, Any] = {
        "task_name": "shop.tasks.charge",
        "reason": "error",
        "error_class": "client.errors.Refused",
        "message": "card 17 refused",
    }
    return fingerprint_of(**(given | fields), traceback=traceback)


def raised(error: str, *frames: tuple[str, str, str]) -> str:
    lines = [f'  File "{path}", line 3, in {name}\n    {source}\n' for path, name, source in frames]
    return f"Traceback (most recent call last):\n{''.join(lines)}{error}\n"


def test_the_title_is_without_what_varies_and_the_place_is_the_innermost_of_the_project() -> None:
    assert of() == Fingerprint(of().value, "card # refused", "shop.cards:pay")
    assert of().value.startswith(f"{VERSION}-")
    assert len(of().value) == len(f"{VERSION}-") + 32


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("line 40", "line 1077"),
        ("/app/", "/srv/releases/2026-04-01/"),
        ("/app/", "/usr/local/lib/python3.13/site-packages/"),
        ("/app/shop/", "C:\\\\deploy\\\\shop\\\\"),
        ("           ^^^^^^^^^^^^^^^^^\n", "           ~~~~~~~~~~~^^^^^^\n"),
        ("           ^^^^^^^^^^^^^^^^^\n", ""),
        ("site-packages/client/api.py", "site-packages/client/transport/http.py"),
        ("card 17 refused", "Karte 99 abgelehnt"),
    ],
    ids=["lines", "root", "installed", "windows", "markers-3.13", "no-markers", "library", "message"],
)
def test_it_stays_over(old, new) -> None:
    assert old in CHARGE
    assert of(CHARGE.replace(old, new)).value == of().value


@pytest.mark.parametrize(
    ("traceback", "fields"),
    [
        (CHARGE.replace("client.post(card)", "client.put(card)"), {}),
        (CHARGE.replace("in pay", "in refund"), {}),
        (CHARGE, {"error_class": "client.errors.Unreachable"}),
        (CHARGE, {"task_name": "shop.tasks.refund"}),
    ],
    ids=["statement", "function", "class", "task"],
)
def test_it_changes_with_the(traceback, fields) -> None:
    assert of(traceback, **fields).value != of().value


def test_who_called_the_statement_does_not_count() -> None:
    other = CHARGE.replace('pay(order["card"])', "[pay(card) for card in cards]").replace(
        "in charge", "in each"
    )

    assert of(other).value == of().value


def test_a_comprehension_is_of_its_function_as_since_python_3_12() -> None:
    source = "return [row['price'] for row in rows]"
    new = raised("KeyError: 'price'", ("/app/shop/a.py", "total", source))
    old = raised(
        "KeyError: 'price'", ("/app/shop/a.py", "total", source), ("/app/shop/a.py", "<listcomp>", source)
    )

    assert of(old).value == of(new).value


def test_the_first_cause_counts_and_what_was_being_handled_does_not() -> None:
    def wrapped(by: str, error: str, source: str) -> str:
        return of(raised(error, ("/app/shop/a.py", "read", source)) + by + CHARGE).value

    values = {
        wrapped(CAUSED, "KeyError: 1", "row[1]"),
        wrapped(CAUSED, "ValueError: 1", "row[1]"),
        wrapped(CAUSED, "KeyError: 1", "row[2]"),
        of().value,
    }
    assert len(values) == 4
    assert wrapped(HANDLING, "KeyError: 1", "row[1]") == of().value


def test_a_group_is_told_by_its_kinds_of_members_and_not_by_their_number() -> None:
    def group(*members: str) -> str:
        text = "  + Exception Group Traceback (most recent call last):\n" + indent(
            '  File "/app/shop/a.py", line 1, in run\n    async with TaskGroup():\n'
            f"ExceptionGroup: unhandled errors ({len(members)} sub-exceptions)\n",
            "  | ",
        )
        for number, member in enumerate(members, 1):
            corner = "  +-+" if number == 1 else "    +"
            text += f"{corner}---------------- {number} ----------------\n{indent(member, '    | ')}"
        text += "    +------------------------------------\n"
        return of(text, error_class="ExceptionGroup").value

    reset = raised("ConnectionResetError: part 1", ("/app/shop/a.py", "part", "raise reset"))
    again = reset.replace("part 1", "part 2").replace("line 3", "line 8")
    other = raised("ConnectionResetError: part 1", ("/app/shop/a.py", "whole", "raise reset"))

    assert group(reset) == group(reset, again, again)
    assert len({group(reset), group(other), group(reset, other)}) == 3


def test_where_a_recursion_hits_the_limit_is_chance() -> None:
    ping, pong = ("/app/shop/a.py", "ping", "pong(n)"), ("/app/shop/a.py", "pong", "ping(n)")
    limit = "RecursionError: maximum recursion depth exceeded"

    assert (
        of(raised(limit, *[ping, pong] * 9), error_class="RecursionError").value
        == of(raised(limit, *[ping, pong] * 9, ping), error_class="RecursionError").value
        != of(raised(limit, *[ping] * 9), error_class="RecursionError").value
    )


def test_a_class_that_python_renamed_or_a_library_moved_is_the_same() -> None:
    assert of(error_class="re.error").value == of(error_class="re.PatternError").value
    assert of(error_class="client.Refused").value == of().value


def test_a_message_that_looks_like_a_traceback_is_a_message() -> None:
    remote = "the other side said:\n" + raised("KeyError: 1", ("/app/shop/b.py", "far", "row[1]")) + CAUSED
    chained = CHARGE.replace("card 17 refused", remote + CHARGE)

    assert of(chained, message=remote + CHARGE.rstrip()).place == "shop.cards:pay"
    assert [
        each.error_class for each in read_traceback(CHARGE + '  File "/app/shop/b.py", line 1, in far\n')
    ] == ["client.errors.Refused"]


def test_what_failed_in_another_process_is_told_by_the_statement_there() -> None:
    def remote(source: str) -> str:
        there = raised("KeyError: 1", ("/app/shop/b.py", "far", source))
        quoted = f'concurrent.futures.process._RemoteTraceback: \n"""\n{there}"""\n'
        return of(quoted + CAUSED + CHARGE).value

    assert len({remote("row[1]"), remote("row[2]"), of().value}) == 3


def test_without_a_frame_of_the_project_the_fixed_words_are_the_place() -> None:
    def words(message: str, reason: str = "expired") -> str:
        return of("", message=message, reason=reason).value

    assert words("it came after its expires, 2026-03-01T10:00:00+00:00") == words(
        "it came after its expires, 2027-12-24T08:30:00.125+00:00"
    )
    assert len({words("no such queue"), words("no such task"), words("no such task", "malformed")}) == 3


def test_without_its_source_a_function_needs_the_words_too() -> None:
    bare = 'Traceback (most recent call last):\n  File "/app/shop/a.pyc", line 1, in run\nValueError: x\n'

    assert of(bare, message="no such card").value != of(bare, message="no such shop").value
    assert of(bare, message="order 1").value == of(bare, message="order 2").value


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/app/shop/tasks/orders.py", "shop.tasks.orders"),
        ("/home/ada/shop/shop/tasks/__init__.py", "shop.tasks"),
        ("/venv/lib/python3.12/site-packages/shop/tasks.py", "shop.tasks"),
        ("/srv/helpers.py", "helpers"),
        ("C:\\code\\shop\\tasks.py", "shop.tasks"),
        ("/venv/lib/python3.12/site-packages/django/db/utils.py", None),
        ("/usr/lib/python3/dist-packages/requests/api.py", None),
        ("/usr/lib/python3.11/json/decoder.py", None),
        ("C:\\Python312\\Lib\\json\\decoder.py", None),
        ("/opt/python312.zip/json/decoder.py", None),
        ("<frozen importlib._bootstrap>", None),
        ("<string>", None),
    ],
)
def test_the_code_of_the_project_is_known_by_its_path(path, module) -> None:
    assert module_of(path, frozenset({"shop"})) == module


def test_named_packages_are_the_project_and_nothing_else_is() -> None:
    assert module_of("/bundle/client/api.py", frozenset({"shop"}), only=True) is None
    assert of(packages=("client",)).place == "client.api:post"


@pytest.mark.parametrize(
    ("message", "scrubbed"),
    [
        ("order 12 of -3.50 at 99%", "order # of # at #%"),
        ("user 7f9c24e8-3b12-4fef-91e0-5f1a2b3c4d5e", "user <id>"),
        ("<Order object at 0x7f36e310830>", "<Order object at <hex>>"),
        ("commit 9f31c2e4ab is gone", "commit <hex> is gone"),
        ("late since 2026-03-01T10:00:00.5+00:00, 12:30", "late since <date>, <date>"),
        ("mail to ada+x@shop.example", "mail to <email>"),
        ("GET https://api.shop.example/v1/o?id=7: 503", "GET <url> #"),
        ("cannot reach 10.4.1.7:5432 nor db-1.internal:5432", "cannot reach <host> nor <host>"),
        ("no file /srv/data/7/a.csv", "no file <path>"),
        ("no file C:\\data\\7.csv", "no file <path>"),
        ("no such key 'carpet' in \"a b\"", "no such key <value> in <value>"),
        ("can't read it, isn't there", "can't read it, isn't there"),
        ("'str' object has no attribute 'close'", "'str' object has no attribute 'close'"),
        ("token eyJhbGciOiJIUzI1NiIsInR5cCI6", "token <token>"),
    ],
)
def test_what_varies_is_taken_out_of_a_message(message, scrubbed) -> None:
    assert scrub(message) == scrubbed


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/shop/a.py", line 1, in run
  | ExceptionGroup: errors (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +---------------- 2 ----------------
    | ValueError: 2
    +------------------------------------
"""
LINES = [
    *f"{CHARGE}{CAUSED}{GROUP}{HANDLING}[... cut ...]\n".splitlines(keepends=True),
    "'",
    "\\",
    "\ud800",
    "\0",
]
PARTS = st.sampled_from(LINES)
TEXTS = st.one_of(st.text(), st.lists(PARTS, max_size=30).map("".join))


@given(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS))
@example(("", "", "", "", ""))
def test_no_text_makes_it_raise_and_the_same_text_has_the_same_fingerprint(texts) -> None:
    names = ("task_name", "reason", "error_class", "message", "traceback")
    fields: dict[str, Any] = dict(zip(names, texts, strict=True))

    found = fingerprint_of(**fields)

    assert found == fingerprint_of(**fields)
    assert len(found.value) == len(f"{VERSION}-") + 32
    assert max(len(found.title), len(found.place)) <= 255
    assert "\n" not in found.title


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "1",
        "'",
        "\\'",
        '"',
        "`",
        "/a",
        "a.",
        "1:",
        "a-",
        "f0",
        "a@",
        "x://",
        "00000000-",
        "\t",
        "<",
        "| ",
        *LINES,
    ],
)
def test_a_megabyte_of_anything_takes_milliseconds(unit) -> None:
    text = unit * (MEGABYTE // len(unit))
    took = []
    for message, traceback in ((text, ""), ("", text), (text, CHARGE + text), (text, f"E: {text}")):
        started = time.thread_time()
        of(traceback, message=message, budget_seconds=60.0)
        took.append(time.thread_time() - started)

    assert max(took) < 0.1  # Some 4 ms here: what grew with the square of the text would take minutes.


def test_without_time_it_is_told_by_what_is_known_beforehand() -> None:
    found = of(budget_seconds=-1.0)

    assert found == replace(of("something else", budget_seconds=-1.0), title="", place="")
    assert found.value != of().value


def test_the_frozen_letters_are_grouped_as_people_would_and_as_well_as_the_docs_say() -> None:
    written = re.search(r"precision ([\d.]+) recall ([\d.]+) F1 ([\d.]+)", DOCS.read_text(encoding="utf-8"))
    assert written is not None

    found = score(records_of("test"))

    assert found.f1 >= LEAST_F1
    assert written.groups() == tuple(f"{each:.4f}" for each in (found.precision, found.recall, found.f1))
