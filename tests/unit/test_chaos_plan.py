"""The plan of a chaos run: one seed is one plan, which holds every kind of task and of fault."""

from __future__ import annotations

from collections import Counter

import pytest

from hardening.chaos.malformed import raw_message
from hardening.chaos.plan import MALFORMATIONS, SHARES, SIZES, Fault, Kind, make_plan


def test_a_seed_is_one_plan() -> None:
    assert make_plan(seed=7, tasks=500) == make_plan(seed=7, tasks=500)
    assert make_plan(seed=7, tasks=500) != make_plan(seed=8, tasks=500)


@pytest.mark.parametrize("tasks", [1, 7, 60, 1000])
def test_there_are_as_many_tasks_as_were_asked_for_each_with_its_own_key(tasks: int) -> None:
    plan = make_plan(seed=1, tasks=tasks)

    keys = [key for item in plan.items for key in item.keys]
    assert plan.tasks == len(keys) == len(set(keys)) == tasks


def test_a_small_run_has_all_kinds_and_all_faults() -> None:
    plan = make_plan(seed=1, tasks=60)

    assert {item.kind for item in plan.items} == set(Kind)
    assert {strike.fault for strike in plan.strikes} == set(Fault)


def test_kinds_have_their_shares() -> None:
    plan = make_plan(seed=1, tasks=10_000)

    amounts = Counter(item.kind for item in plan.items)
    for kind, share in SHARES.items():
        assert amounts[kind] == round(share * 10_000 / SIZES.get(kind, 1))


def test_ten_thousand_tasks_see_250_kills() -> None:
    counts = Counter(strike.fault for strike in make_plan(seed=1, tasks=10_000).strikes)

    assert counts[Fault.KILL_CHILD] + counts[Fault.KILL_WORKER] == 250


def test_a_pool_without_children_has_only_its_workers_killed() -> None:
    counts = Counter(strike.fault for strike in make_plan(seed=1, tasks=1000, pool="gevent").strikes)

    assert (counts[Fault.KILL_CHILD], counts[Fault.KILL_WORKER]) == (0, 25)


def test_what_is_left_out_is_not_there() -> None:
    plan = make_plan(seed=1, tasks=200, without=("malformed", "broker", "database"))

    assert Kind.MALFORMED not in {item.kind for item in plan.items}
    assert not {Fault.BROKER, Fault.DATABASE} & {strike.fault for strike in plan.strikes}
    assert plan.tasks == 200


def test_named_numbers_of_faults_take_the_place_of_the_usual_ones() -> None:
    plan = make_plan(seed=1, tasks=200, faults={"kill_child": 9, "kill_worker": 0})

    counts = Counter(strike.fault for strike in plan.strikes)
    assert (counts[Fault.KILL_CHILD], counts[Fault.KILL_WORKER], counts[Fault.CUT]) == (9, 0, 1)


def test_every_fault_comes_while_there_is_work_left() -> None:
    plan = make_plan(seed=1, tasks=1000)
    expected = sum(len(item.keys) for item in plan.items if item.kind.succeeds)

    assert [strike.after for strike in plan.strikes] == sorted(strike.after for strike in plan.strikes)
    assert all(0 < strike.after <= 0.9 * expected for strike in plan.strikes)


def test_malformations_take_turns() -> None:
    plan = make_plan(seed=1, tasks=1000)

    seen = [item.details["malformation"] for item in plan.items if item.kind is Kind.MALFORMED]
    assert Counter(seen) == dict.fromkeys(MALFORMATIONS, 2)


@pytest.mark.parametrize("malformation", MALFORMATIONS)
def test_a_raw_message_can_be_told_by_its_key(malformation: str) -> None:
    raw = raw_message(malformation, "the-key")

    assert raw.headers.get("id") == "the-key" or b"the-key" in raw.body
