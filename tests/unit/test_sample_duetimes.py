"""What Beat sent is counted by due times, which are reckoned from the schedules alone."""

from __future__ import annotations

from sample_project.demo.duetimes import DueTimes, Takeover, count_due_times
from sample_project.effects import STARTED, SUCCEEDED, Effect

EVERY = {"often": 1000}


def ran(due_ms: int, outcome: str = SUCCEEDED) -> Effect:
    return Effect(key="k", kind="task", outcome=outcome, scheduled=f"{due_ms} often")


def sent(*due_ms: int) -> list[tuple[str, int]]:
    return [("often", each) for each in due_ms]


def test_due_times_that_each_ran_once_balance_whatever_was_started_again() -> None:
    effects = [ran(5000, STARTED), ran(5000), ran(6000, STARTED), ran(6000, STARTED), ran(6000)]

    counted = count_due_times(EVERY, sent(5000, 6000), effects)

    assert counted == DueTimes(due=2, sent=2, doubled=0, missed=0)
    assert counted.balances


def test_a_due_time_in_between_that_nobody_sent_is_missed() -> None:
    counted = count_due_times(EVERY, sent(5000, 7000), [ran(5000), ran(7000)])

    assert counted == DueTimes(due=3, sent=2, doubled=0, missed=1)
    assert not counted.balances


def test_what_was_sent_and_did_not_run_is_missed() -> None:
    assert count_due_times(EVERY, sent(5000, 6000), [ran(5000)]).missed == 1


def test_a_second_run_and_one_beside_the_schedule_are_doubles() -> None:
    counted = count_due_times(EVERY, sent(5000, 6000), [ran(5000), ran(5000), ran(5500), ran(6000)])

    assert counted == DueTimes(due=2, sent=2, doubled=2, missed=0)
    assert not counted.balances


def test_nothing_at_all_does_not_balance() -> None:
    assert not count_due_times(EVERY, [], []).balances


def test_the_line_says_who_was_killed_and_who_took_over() -> None:
    counted = DueTimes(due=28, sent=28, doubled=0, missed=0)

    assert counted.line(Takeover(killed=1, after=2, seconds=4.84)) == (
        "beat: due=28 sent=28 doubled=0 missed=0 takeover=4.8 s (killed leader epoch 1, epoch 2 took over)"
    )
