"""The demo's table of verdicts: what it takes from the letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sample_project.demo.ledger import Attempt, Letter, LetterState
from sample_project.demo.verdicts import waits, why

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(rule: str = "http.status 503", *, verdict: str = "transient", at: float = 0) -> Attempt:
    """One second long."""
    began = BEGIN + timedelta(seconds=at)
    return Attempt(verdict=verdict, rule=rule, began=began, failed=began + timedelta(seconds=1))


def letter(*attempts: Attempt, key: str = "a", state: LetterState = LetterState.OPEN) -> Letter:
    return Letter(id=key, key=key, reason="retries_exhausted", state=state, attempts=attempts)


def cells(*letters: Letter, published: dict[str, str] | None = None) -> list[list[str]]:
    """The rows below the head, split into words."""
    return [line.split() for line in why(published or {"a": "job", "b": "job"}, letters).splitlines()[2:]]


def test_the_last_attempt_says_what_decided():
    first, last = attempt("none", verdict="unknown"), attempt("http.status 404", verdict="permanent")

    [line] = cells(letter(first, last))

    assert line[2:5] == ["permanent", "http.status", "404"]


def test_letters_that_say_the_same_share_a_line():
    [line] = cells(letter(attempt()), letter(attempt(), attempt(at=3), key="b"))

    assert line == ["job", "2", "transient", "http.status", "503", "1-2", "2.0", "s", "retries_exhausted"]


def test_each_thing_said_of_one_kind_has_a_line():
    lines = cells(letter(attempt("http.status 503")), letter(attempt("http.timeout"), key="b"))

    assert [line[3] for line in lines] == ["http.status", "http.timeout"]


def test_only_open_letters_of_published_jobs_are_in_it():
    replayed = letter(attempt(), state=LetterState.REPLAYED)
    stranger = letter(attempt(), key="stranger")

    assert cells(replayed, stranger) == []


def test_a_letter_without_a_verdict_is_shown_as_such():
    [line] = cells(letter(Attempt()))

    assert line[2:] == [".", ".", "1", ".", "retries_exhausted"]


def test_a_wait_is_from_the_end_of_an_attempt_to_the_beginning_of_the_next():
    assert waits([attempt(at=0), attempt(at=1.5), attempt(at=10)]) == [0.5, 7.5]


def test_where_a_time_is_missing_there_is_no_wait():
    assert waits([attempt(), Attempt()]) == []
