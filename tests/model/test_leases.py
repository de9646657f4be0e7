"""What leases promise, over every interleaving; and each rule of the design, left out, breaks a promise."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hardening.leases import scripts
from tests.model import lease_model
from tests.model.checker import Report, explore
from tests.model.lease_model import INVARIANTS, Rules, State, done, mirrored, moves_of, show, start_of

GOAL = "with nothing more failing, every message is done"
MOVES = """
publishes / takes / renews / ran out / to others / holds / marks / asks / there is one / starts / ends
records / acknowledges / late / gives back / cuts off / connects again / wakes up / is gone / Redis is up
is killed / is stopped / is cut off / its connection / shut down / Redis is down / with nothing
leases vanish / takes, and the answer is lost
"""


def _checked(
    rules: Rules, *claims: str, messages: int = 1, failures: int, prefetch: int = 2
) -> Report[State]:
    """All claims, or those that are named."""
    wanted = {name: holds for name, holds in INVARIANTS.items() if not claims or name in claims}
    return explore(
        start_of(messages=messages, failures=failures),
        moves_of(rules, prefetch=prefetch),
        invariants=wanted,
        goal=(GOAL, done) if not claims or GOAL in claims else None,
        # With clocks of their own the workers are not alike.
        alike=mirrored if not rules.clock_ahead else lambda state: state,
        show=show,
    )


def test_every_promise_holds_with_any_two_failures() -> None:
    report = _checked(Rules(), failures=2)

    assert report.counterexample is None, str(report.counterexample)
    wanted = [move for line in MOVES.strip().splitlines() for move in line.split(" / ")]
    assert [move for move in wanted if not any(move in label for label in report.labels)] == []


def test_every_promise_holds_for_two_messages_with_any_failure() -> None:
    report = _checked(Rules(), messages=2, failures=1, prefetch=1)

    assert report.counterexample is None, str(report.counterexample)


BROKEN: list[tuple[dict[str, Any], int, str, str]] = [
    ({"rechecks_deadline": False}, 1, "single run", "gives 0 to others"),
    ({"takes_in_one_step": False}, 1, "never lost", "is killed"),
    ({"fresh_tags": False}, 1, "one holder", "takes message 0 as 0"),
    ({"fresh_tags": False}, 1, "protected", "acknowledges 0"),
    ({"keeps_on_reconnect": False}, 1, "single run", "gives back"),
    ({"clock_ahead": 2}, 0, "single run", "gives 0 to others"),
    ({"holds_again": False}, 2, "never lost", "leases vanish"),
    ({"asks_ledger_before_holding": False}, 0, "settled is final", "holds 0 again"),
    ({"records_success": False}, 1, "settled is final", "acknowledges 0"),
    ({"marks_before_asking": False}, 1, "settled is final", "records the success"),
    ({"knows_its_own_copies": False}, 2, "single run", "marks 1"),
    ({"waits_for_store": False}, 2, "single run", "Redis is down"),
    ({"sweeps_later_after_outage": False}, 1, "single run", "Redis is down"),
    ({"gives_back_from_memory": False}, 2, "never lost", "gives back 0"),
    ({"drops_what_was_lost": False}, 1, "single run", "renews"),
    ({"looks_at_own_clock": False}, 1, "single run", "starts 0"),
    ({"looks_at_own_clock": False}, 1, "settled is final", "starts 0"),
]


@pytest.mark.parametrize(
    ("change", "failures", "claim", "by"), BROKEN, ids=[f"{next(iter(b[0]))}: {b[2]}" for b in BROKEN]
)
def test_without_the_rule_the_promise_breaks(
    change: dict[str, Any], failures: int, claim: str, by: str
) -> None:
    found = _checked(replace(Rules(), **change), claim, failures=failures).counterexample

    assert found is not None
    assert found.claim == claim
    assert any(by in label for label in found.labels), str(found)
    assert sum(label.startswith("!") for label in found.labels) == failures, str(found)


def test_a_mark_that_does_not_run_out_holds_a_message_back_for_ever() -> None:
    moves = moves_of(Rules(marks_run_out=False))
    deaths = ("is killed", "takes, and the answer is lost")

    found = explore(
        start_of(failures=2),
        lambda state: (m for m in moves(state) if not m.failure or m.label.endswith(deaths)),
        invariants={},
        goal=(GOAL, done),
        alike=mirrored,
        show=show,
    ).counterexample

    assert found is not None
    assert found.moves[-1][1].redis.marks, str(found)


def test_a_fail_over_that_forgets_a_take_loses_nothing_and_may_double() -> None:
    moves = moves_of(Rules(), fail_over=True)
    doubled = {"single run", "settled is final"}
    kept = {name: holds for name, holds in INVARIANTS.items() if name not in doubled}

    report = explore(
        start_of(failures=1), moves, invariants=kept, goal=(GOAL, done), alike=mirrored, show=show
    )
    assert report.counterexample is None, str(report.counterexample)
    for claim in doubled:
        once = {claim: INVARIANTS[claim]}
        assert explore(start_of(failures=1), moves, invariants=once, alike=mirrored).counterexample


def test_the_table_of_moves_names_files_and_scripts_that_exist() -> None:
    lines = [line.split("|")[1:-1] for line in str(lease_model.__doc__).splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line] for line in lines[1:]]
    hardening = Path(scripts.__file__).parent.parent

    assert len(rows) > 10
    assert all((hardening / file).is_file() for _, file, _, _ in rows if file.endswith(".py"))
    assert {script for _, file, script, _ in rows if file.startswith("leases/") and script} <= set(
        scripts.__all__
    )


def test_every_rule_has_its_twin() -> None:
    broken = {name for change, *_ in BROKEN for name in change} | {"marks_run_out"}

    assert broken == {rule.name for rule in fields(Rules)}
