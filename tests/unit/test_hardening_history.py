"""Attempts: read from any error, carried in a header of bounded size, and never a reason to fail."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from hardening.core.redaction import MASK, Redactor
from hardening.history import (
    MAX_ATTEMPTS,
    MAX_HEADER_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_TRACEBACK_CHARS,
    attempt_from,
    attempt_number,
    class_path,
    decode_history,
    encode_history,
)
from tests.helpers.dlq_letters import attempt


def unchanged(text: str) -> str:
    return text


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BrokenTraceback(Exception):
    @property
    def __cause__(self):  # type: ignore[override]
        raise RuntimeError("no cause")


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except type(exc) as caught:
        return caught


def attempt_of(exc: BaseException, clean=unchanged):
    return attempt_from(raised(exc), number=2, worker="w1@host", started_at=1_000.5, clean=clean)


def test_an_attempt_says_what_happened_where_and_when() -> None:
    before = datetime.now(UTC)

    made = attempt_of(ValueError("no such order"))

    assert (made.number, made.worker, made.error_class) == (2, "w1@host", "ValueError")
    assert made.message == "no such order"
    assert "raise exc\nValueError: no such order" in made.traceback
    assert made.started_at == datetime.fromtimestamp(1_000.5, UTC)
    assert made.failed_at is not None
    assert before <= made.failed_at <= datetime.now(UTC)


def test_an_attempt_whose_start_is_unknown_has_none() -> None:
    made = attempt_from(ValueError(), number=1, worker="", started_at=None, clean=unchanged)

    assert made.started_at is None


@pytest.mark.parametrize(
    ("error_class", "path"),
    [
        (ValueError, "ValueError"),
        (json.JSONDecodeError, "json.decoder.JSONDecodeError"),
        (BrokenText, f"{__name__}.BrokenText"),
    ],
)
def test_a_class_is_named_by_its_path_and_builtins_bare(error_class, path) -> None:
    assert class_path(error_class) == path


def test_an_error_whose_text_cannot_be_read_is_an_attempt_all_the_same() -> None:
    made = attempt_of(BrokenText())

    assert made.message == "(the text of this BrokenText cannot be read)"
    assert made.error_class.endswith(".BrokenText")


def test_an_error_whose_traceback_cannot_be_formatted_is_an_attempt_all_the_same() -> None:
    made = attempt_of(BrokenTraceback("text"))

    assert made.message == "text"
    assert made.traceback.endswith("BrokenTraceback (its traceback cannot be formatted)")


def test_the_cause_of_an_error_is_in_its_traceback() -> None:
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")

    assert "KeyError: 'inner'" in attempt_of(error).traceback


def test_texts_are_cleaned_of_secrets_before_they_are_cut() -> None:
    secret = "s3cr3t-value"
    text = "x" * (MAX_MESSAGE_CHARS - 5) + secret

    made = attempt_of(ValueError(text), clean=lambda t: Redactor().text(t, [secret]))

    assert "s3cr3t" not in made.message + made.traceback
    assert made.message.endswith(MASK)


def test_long_texts_keep_their_beginning_and_their_end() -> None:
    made = attempt_of(ValueError("a" * 500_000 + "the end"))

    assert len(made.message) <= MAX_MESSAGE_CHARS
    assert len(made.traceback) <= MAX_TRACEBACK_CHARS
    assert made.message.startswith("aaa")
    assert made.message.endswith("the end")
    assert "[... cut ...]" in made.message


def test_a_history_comes_back_as_it_was() -> None:
    attempts = [attempt(n, message=f"ü {n}", started_at=None) for n in range(1, 6)]

    assert decode_history(encode_history(attempts)) == attempts


@pytest.mark.parametrize("count", [1, 10, 100, 1_000])
@pytest.mark.parametrize("text", ["x", "ü", "\x00", '"', "😀"])
def test_the_header_is_bounded_whatever_is_in_it_and_the_newest_attempt_stays(count, text) -> None:
    attempts = [
        attempt(n, message=text * 3_000, traceback=text * 30_000, worker=text * 50)
        for n in range(1, count + 1)
    ]

    header = encode_history(attempts)

    assert len(header) <= MAX_HEADER_CHARS
    carried = decode_history(header)
    assert carried[-1].number == count
    assert 1 <= len(carried) <= MAX_ATTEMPTS
    numbers = [each.number for each in carried]
    assert numbers == list(range(count - len(carried) + 1, count + 1))


def test_the_oldest_tracebacks_go_before_any_attempt_goes() -> None:
    attempts = [attempt(n, traceback="t" * 1_500) for n in range(1, 31)]

    carried = decode_history(encode_history(attempts))

    assert [each.number for each in carried] == list(range(1, 31))
    bare = [not each.traceback for each in carried]
    assert bare == sorted(bare, reverse=True)
    assert bare[0]
    assert carried[-1].traceback


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "garbage", "{}", "[]", "1", "null", "[1]", "[[1, 2]]", b"[]", 7, [], {}),
        '[["a", "b", "c", "d", "e", null, null]]',
        '[[1, "b", "c", "d", "e", 1e300, null]]',
        '[[1, "b", "c", "d", "e", "then", null]]',
        '[[1e999, "b", "c", "d", "e", null, null]]',
        "[" * 100_000,
    ],
)
def test_a_header_that_is_no_history_is_an_empty_one(header) -> None:
    assert decode_history(header) == []


@pytest.mark.parametrize(
    ("retries", "number"),
    [(0, 1), (3, 4), (None, 1), ("many", 1), ("3", 1), ([], 1), (-5, 1), (2.5, 1)],
)
def test_the_number_of_an_attempt_is_the_retry_count_plus_one_where_it_is_a_count(retries, number) -> None:
    assert attempt_number(retries) == number
