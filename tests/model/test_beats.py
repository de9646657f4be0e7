"""What one leader of many promises, over every interleaving; and each rule, left out, breaks a promise."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import beat_leader
from tests.model import beat_model
from tests.model.beat_model import (
    AGAIN,
    BESIDE,
    DOUBLE,
    INVARIANTS,
    OLD,
    SAME,
    TWICE,
    Rules,
    State,
    done,
    moves_of,
    show,
    sorted_beats,
    start_of,
)
from tests.model.checker import Report, explore

GOAL = "with nothing more failing, every due time is sent"
MOVES = """
a tick / reads the newest / asks for / answered by the lock / another leads / hears / looks / opens / confirms
has lost it / renews / resigns / reads rows / decides / takes up / checks / publishes / marks / is refused
is killed / forgets everything / the answer is lost / trust is over
"""


def _checked(rules: Rules, *claims: str, **start: int) -> Report[State]:
    return explore(
        start_of(**start, counts=DOUBLE in claims),
        moves_of(rules),
        invariants={name: INVARIANTS[name] for name in claims},
        goal=(GOAL, done) if len(claims) > 1 else None,
        alike=sorted_beats,
        show=show,
    )


def test_every_promise_holds_with_any_two_failures() -> None:
    report = _checked(Rules(), OLD, TWICE, AGAIN, SAME, BESIDE, failures=2)

    assert report.counterexample is None, str(report.counterexample)
    wanted = [move for line in MOVES.strip().splitlines() for move in line.split(" / ")]
    assert [move for move in wanted if not any(move in label for label in report.labels)] == []


def test_every_promise_holds_for_three_beats_and_for_two_due_times() -> None:
    for start in ({"beats": 3, "failures": 0}, {"dues": 2, "failures": 0}):
        report = _checked(Rules(), OLD, TWICE, AGAIN, SAME, BESIDE, **start)
        assert report.counterexample is None, str(report.counterexample)


def test_a_due_time_has_one_message_if_nobody_is_interrupted_while_it_sends() -> None:
    report = _checked(Rules(swift=True), DOUBLE, BESIDE, failures=1)

    assert report.counterexample is None, str(report.counterexample)


def test_who_is_stopped_between_its_last_look_and_the_broker_sends_what_another_has_sent() -> None:
    found = _checked(Rules(), DOUBLE, failures=0).counterexample

    assert found is not None
    assert "takes up" in str(found)  # Under the same id: it is one row.


BROKEN: list[tuple[dict[str, Any], int, str, str]] = [
    ({"fence": False}, 0, OLD, "opens its term"),
    ({"trust_from_asking": False}, 0, BESIDE, "hears that it renewed"),
    ({"trust_from_asking": False, "swift": True}, 0, DOUBLE, "hears that it renewed"),
    ({"looks_at_trust": False, "swift": True}, 0, DOUBLE, "a tick passes"),
    ({"at_least": False, "confirms": False}, 1, SAME, "forgets everything"),
    ({"confirms": False}, 1, SAME, "forgets everything"),
    ({"reads_afresh": False}, 0, AGAIN, "publishes"),
    ({"row_once": False, "reads_afresh": False}, 0, TWICE, "decides"),
]


@pytest.mark.parametrize(
    ("change", "failures", "claim", "by"), BROKEN, ids=[f"{'-'.join(b[0])}: {b[2]}" for b in BROKEN]
)
def test_without_the_rule_the_promise_breaks(
    change: dict[str, Any], failures: int, claim: str, by: str
) -> None:
    found = _checked(replace(Rules(), **change), claim, failures=failures).counterexample

    assert found is not None
    assert any(by in label for label in found.labels), str(found)
    assert sum(label.startswith("!") for label in found.labels) == failures, str(found)


def test_every_rule_has_its_twin() -> None:
    broken = {name for change, *_ in BROKEN for name in change}

    assert broken == {rule.name for rule in fields(Rules)}


def test_the_table_of_moves_names_files_that_exist() -> None:
    lines = [line.split("|")[1:-1] for line in str(beat_model.__doc__).splitlines() if line.startswith("| ")]
    files = {line[1].strip() for line in lines[1:]}
    package = Path(str(beat_leader.__file__)).parent

    assert len(files) > 3
    assert all((package / file).exists() for file in files)
