"""What follows on deaths: so many starts and no more, a back-off between them, and no charge for others."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hardening.poison.case import MOST_DEATHS, NOTHING, Case, Death, GivenUp, How, Start, Suspicion
from hardening.poison.policy import Next, back_off, decide
from hardening.poison.terms import Poison, poison_of, task_terms
from hardening.store import encoded

NOW = 1_000_000.0
LONG_AGO = NOW - 3600
TERMS = Poison()


def deaths(number: int, at: float = LONG_AGO) -> tuple[Death, ...]:
    return tuple(Death(id=f"d{i}", at=at + i) for i in range(number))


def starts(number: int) -> tuple[Start, ...]:
    return tuple(Start(id=f"s{i}", holder="h", at=NOW) for i in range(number))


@pytest.mark.parametrize(
    ("limit", "dead", "suspected", "running", "moved"),
    list(product([1, 2, 3, 4, math.inf], range(5), [False, True], range(4), [False, True])),
)
def test_every_small_case_follows_the_rules(
    limit: float, dead: int, suspected: bool, running: int, moved: bool
) -> None:
    case = Case(starts(running), deaths(dead), Suspicion(at=LONG_AGO) if suspected else None)
    terms = Poison(limit=limit, last_try_queue="roomy")

    decision = decide(case, terms, NOW, moved=moved)

    count = dead + (1 if dead and suspected else 0)
    assert decision.count == count
    if count >= limit:
        assert decision.next is Next.QUARANTINE
    elif running and count + running >= limit:  # Each of those that run may be the last death.
        assert decision.next is Next.WAIT
    elif count and count == limit - 1 and not moved:
        assert decision.next is Next.ELSEWHERE
    else:
        assert decision.next is Next.RUN


def test_the_last_try_elsewhere_has_its_back_off_before() -> None:
    terms = Poison(limit=2, base=10, cap=10, last_try_queue="roomy")
    case = Case(deaths=deaths(1, at=NOW))

    assert decide(case, terms, NOW, moved=False).next is Next.WAIT
    assert decide(case, terms, NOW + 10, moved=False).next is Next.ELSEWHERE


@pytest.mark.parametrize("limit", range(1, 8))
@pytest.mark.parametrize("first_is_seen", [True, False])
def test_what_always_kills_has_exactly_so_many_starts(limit: int, first_is_seen: bool) -> None:
    terms = Poison(limit=limit)
    case, started, now = NOTHING, 0, NOW
    seen = first_is_seen or limit == 1  # A task that is allowed one start is written down at once.
    while started < 20:
        decision = decide(case, terms, now)
        if decision.next is Next.WAIT:
            now = decision.until + 0.001
            continue
        if decision.next is Next.QUARANTINE:
            break
        started += 1
        if started > 1 or seen:
            case = case.begun(Start(id=f"s{started}", holder="h", at=now))
        case = case.gone(case.starts, now)
        case = case.suspect("h", now)
    assert started == limit


def test_a_suspicion_alone_is_no_charge_however_often_it_is_raised() -> None:
    case = NOTHING
    for number in range(10):
        case = case.suspect(f"h{number}", NOW)
        assert decide(case, Poison(limit=1), NOW).next is Next.RUN
    assert case.suspected == Suspicion(at=NOW, holder="h0")


def test_the_wait_doubles_up_to_its_cap_and_is_the_same_at_each_look() -> None:
    terms = Poison(limit=math.inf, base=1, cap=60)
    waits = [back_off(Case(deaths=deaths(number)), terms) for number in range(1, 60)]

    for number, wait in enumerate(waits):
        assert min(60, 2**number) / 2 <= wait <= min(60, 2**number)
    assert waits == [back_off(Case(deaths=deaths(number)), terms) for number in range(1, 60)]


def test_a_death_is_waited_for_and_then_the_task_runs() -> None:
    case = Case(deaths=deaths(1, NOW))
    waits = decide(case, TERMS, NOW)

    assert waits.next is Next.WAIT
    assert 0.5 <= waits.until - NOW <= 1
    assert decide(case, TERMS, waits.until).next is Next.RUN


def test_deaths_and_suspicions_before_the_window_are_forgotten() -> None:
    case = Case(deaths=deaths(3), suspected=Suspicion(at=LONG_AGO))

    assert decide(case, Poison(window=3000), NOW).next is Next.RUN
    assert decide(case, Poison(window=4000), NOW).next is Next.QUARANTINE


texts = some.text(max_size=10)  # Longer ones may be cut.
a_death = some.builds(
    Death,
    id=some.text(min_size=1, max_size=5),
    at=some.floats(0, 2e9),
    how=some.sampled_from([How.KILLED, How.EXITED, How.MEMORY, How.GONE]),
    signal=texts,
    exitcode=some.none() | some.integers(-200, 255),
    pid=some.integers(0, 2**22),
    worker=texts,
    ran=some.none() | some.floats(0, 1e6),
    peak=some.integers(0, 2**40),
    killed_for_memory=some.booleans(),
)
a_start = some.builds(Start, id=some.text(min_size=1, max_size=5), holder=texts, at=some.floats(0, 2e9))


@given(
    some.lists(a_start, max_size=5),
    some.lists(a_death, max_size=5),
    some.none() | some.builds(Suspicion, at=some.floats(0, 2e9), holder=texts),
    some.lists(
        some.builds(GivenUp, id=some.text(min_size=1, max_size=5), at=some.floats(0, 2e9)), max_size=5
    ),
)
def test_a_case_is_read_as_it_was_written(begun, died, suspected, given_up) -> None:
    case = Case(tuple(begun), tuple(died), suspected, tuple(given_up))

    document = case.document()

    assert Case.read(document) == case
    if document is not None:
        encoded(document)


anything = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | texts,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(some.dictionaries(some.sampled_from(["starts", "deaths", "suspected", "given_up", "more"]), anything))
def test_whatever_stands_in_the_store_can_be_read(document) -> None:
    decide(Case.read(document), TERMS, NOW)


@given(some.lists(a_death, min_size=1, max_size=6))
def test_a_death_that_is_told_twice_is_one(died) -> None:
    once = NOTHING
    for death in died:
        once = once.died(death)
    twice = once
    for death in died:
        twice = twice.died(death)

    assert twice == once
    assert len(once.deaths) == len({death.id for death in died})


@pytest.mark.parametrize("letter", ["x", "\u4e2d", "\U0001f4a5", "\x00"])
def test_a_case_stays_small_enough_for_every_store(letter: str) -> None:
    case, long = NOTHING, letter * 500
    at, ran, peak = 1_800_000_000.123456, 100_000.123456, 10**12
    for number in range(3 * MOST_DEATHS):
        case = case.died(
            Death(
                id=f"{number:032}",
                at=at,
                how=How.EXITED,
                signal="SIGKILL",
                exitcode=-255,
                pid=4_194_304,
                text=long,
                worker=long,
                host=long,
                ran=ran,
                peak=peak,
            )
        )
        case = case.begun(Start(id=f"s{number:031}", holder="h" * 32, worker=long, host=long, at=at))
    case = replace(case, given_up=tuple(GivenUp(id=f"{number:064}", at=at) for number in range(100)))

    encoded(case.document() or {})
    assert Case.read(case.document()).deaths[-1].id == case.deaths[-1].id


def test_a_success_leaves_only_what_others_run() -> None:
    mine, other = starts(2)
    case = Case((mine, other), deaths(2), Suspicion(at=NOW))

    assert case.succeeded(mine.id) == Case((other,))
    assert Case((mine,), deaths(2)).succeeded(mine.id).document() is None


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ({"LIMIT": 0}, "0 is not a whole number"),
        ({"LIMIT": 51}, "at most 50"),
        ({"WINDOW": "soon"}, "soon"),
        ({"BASE": "2 m"}, "more than CAP"),
        ({"CAP": "4 d"}, "no less than WINDOW"),
        ({"LAST_TRY_QUEUE": ""}, "not the name of a queue"),
        ({"LAST_TRY_QUEUE": 3}, "not the name of a queue"),
        ({"LIMITS": 3}, 'did you mean "limit"'),
    ],
)
def test_terms_that_cannot_be_used_are_findings_and_the_defaults_hold(raw, what) -> None:
    terms, findings = poison_of(raw)

    assert [finding.code for finding in findings] == ["CH023"]
    assert what in findings[0].what
    assert terms == TERMS


def test_terms_are_read() -> None:
    terms, findings = poison_of(
        {"LIMIT": 5, "WINDOW": "1 d", "BASE": "2 s", "CAP": "10 s", "LAST_TRY_QUEUE": "roomy"}
    )

    assert findings == []
    assert terms == Poison(limit=5, window=86400, base=2, cap=10, last_try_queue="roomy")


class Task:
    name = "a task"
    __module__ = "somewhere"
    poison_limit: object = None
    poison_queue: object = None


def test_a_task_says_otherwise_and_what_it_cannot_say_is_a_finding() -> None:
    task = Task()
    task.poison_limit, task.poison_queue = 1, "roomy"
    assert task_terms(task, TERMS) == (replace(TERMS, limit=1, last_try_queue="roomy"), [])

    task.poison_limit, task.poison_queue = "many", 5
    terms, findings = task_terms(task, TERMS)
    assert terms == TERMS
    assert [(finding.code, "a task" in finding.what) for finding in findings] == [("CH023", True)] * 2

    task.poison_limit, task.poison_queue = 99, None
    assert "at most 50" in task_terms(task, TERMS)[1][0].what
