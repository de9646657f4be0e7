"""The readers of codes: what they read, and that nothing odd makes them raise."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from hardening.classification.codes import (
    asks_to_wait,
    headers_of,
    held_errors,
    http_status,
    http_verdict,
    is_a,
    retry_after,
    tls_alert,
)
from hardening.classification.verdict import Kind

NOW = datetime(1994, 11, 6, 8, 49, 7, tzinfo=UTC)


class Answered(Exception):
    """An error with whatever attributes a test gives it."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


class Hostile(Exception):
    """An error whose every attribute breaks."""

    def __getattribute__(self, name: str) -> object:
        if name in {"__class__", "__cause__", "__dict__"}:
            return super().__getattribute__(name)
        raise RuntimeError(name)


def asks(value: object, **headers: object) -> float | None:
    error = Answered(headers={"Retry-After": value, **headers})
    return retry_after(error, now=lambda: NOW)


def test_408_425_429_and_5xx_but_501_and_505_are_transient_and_other_errors_permanent():
    verdicts = {status: http_verdict(str(status)) for status in range(100, 600)}
    transient = {408, 425, 429, *range(500, 600)} - {501, 505}
    assert {status for status, kind in verdicts.items() if kind is Kind.TRANSIENT} == transient
    assert {status for status, kind in verdicts.items() if kind is Kind.PERMANENT} == {
        *range(400, 600)
    } - transient


def test_what_is_no_status_has_no_verdict():
    assert [http_verdict(text) for text in ("", "0", "999", "50", "5xx", "-503", "503 ", "٥٠٣")] == [None] * 8


def test_the_status_is_read_from_where_each_library_keeps_it():
    assert http_status(Answered(response=SimpleNamespace(status_code=503))) == "503"
    assert http_status(Answered(response={"ResponseMetadata": {"HTTPStatusCode": 400}})) == "400"
    assert http_status(Answered(http_status=402)) == "402"
    assert http_status(Answered(status=404)) == "404"
    assert http_status(Answered(code=410)) == "410"
    assert http_status(OSError("too many 502 error responses")) == "502"


@pytest.mark.parametrize(
    "error",
    [
        Answered(),
        Answered(status="503"),
        Answered(status=True),
        Answered(status=None, code=7),
        Answered(response=503),
        Answered(response={"ResponseMetadata": None}),
        Answered(status=10**400),
    ],
)
def test_an_odd_status_reads_as_none(error):
    assert http_status(error) is None


def test_an_error_whose_attributes_break_reads_as_none():
    assert http_status(Hostile()) is None
    assert retry_after(Hostile()) is None
    assert tls_alert(Hostile()) is None


def test_retry_after_counts_seconds_also_with_decimals():
    assert [asks("120"), asks("0"), asks(" 1.5 "), asks("+3")] == [120, 0, 1.5, 3]


def test_a_negative_retry_after_is_zero():
    assert asks("-10") == 0


def test_retry_after_takes_a_date_in_its_three_forms():
    forms = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994")
    assert [asks(form) for form in forms] == [30, 30, 30]


def test_a_date_that_has_passed_is_zero():
    assert asks("Sun, 06 Nov 1994 08:00:00 GMT") == 0


def test_a_date_counts_from_the_date_of_the_answer_so_that_skewed_clocks_do_not_matter():
    asked = asks("Mon, 30 Nov 2026 12:00:30 GMT", Date="Mon, 30 Nov 2026 12:00:00 GMT")
    assert asked == 30


def test_a_date_counts_from_now_where_the_answers_own_date_is_nonsense():
    assert asks("Sun, 06 Nov 1994 08:49:37 GMT", Date="yesterday") == 30


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "1e3",
        "nan",
        "inf",
        "1_0",
        "٣",
        "1,5",
        "0x10",
        "9" * 400,
        None,
        b"5",
        5,
        "Sun, 99 Nov 1994 08:49:37",
    ],
)
def test_nonsense_in_retry_after_reads_as_none(value):
    assert asks(value) is None


def test_retry_after_is_found_in_any_case_and_in_milliseconds():
    assert retry_after(Answered(headers={"rEtRy-aFtEr": "7"})) == 7
    assert retry_after(Answered(headers={"X-Amz-Retry-After": "1500", "retry-after": "9"})) == 1.5


def test_a_refusal_asks_to_wait_by_its_header_alone_whether_it_can_be_read_or_not():
    def refused(status: int, **headers: object) -> bool:
        return asks_to_wait(Answered(status=status, headers=headers))

    wait: dict[str, object] = {"Retry-After": "7"}
    assert [refused(status, **wait) for status in (400, 403, 404, 413, 499)] == [True] * 5
    assert refused(403, **{"retry-after": "soon"})
    assert refused(400, **{"x-amz-retry-after": "1500"})
    assert [refused(status, **wait) for status in (200, 301, 500, 501, 503)] == [False] * 5
    assert not refused(403)
    assert not refused(403, **{"Retry-After": " "})
    assert not asks_to_wait(Answered(headers=wait))
    assert not asks_to_wait(Hostile())


def test_odd_headers_read_as_none():
    for headers in (None, 5, "Retry-After: 5", [("Retry-After", "5")], {1: 2}):
        error = Answered(headers=headers)
        assert headers_of(error) == {}
        assert retry_after(error) is None


def test_held_errors_come_nearest_first_and_end_in_a_circle():
    inner, cause = ValueError("inner"), KeyError("cause")
    outer = OSError("text", inner)
    outer.__cause__ = cause
    cause.__cause__ = outer
    assert list(held_errors(outer)) == [outer, cause, inner]


def test_held_errors_are_bounded():
    errors = [ValueError() for _ in range(1000)]
    assert len(list(held_errors(Exception(*errors)))) < 20


def test_what_was_being_handled_is_not_held():
    with pytest.raises(KeyError) as caught:
        try:
            raise ValueError
        except ValueError:
            raise KeyError  # noqa: B904
    assert list(held_errors(caught.value)) == [caught.value]


def test_classes_are_known_by_dotted_names_and_builtins_by_bare_ones():
    assert is_a(ConnectionResetError(), "OSError")
    assert not is_a(ConnectionResetError(), "builtins.OSError", "socket.error")


def test_an_error_without_tls_has_no_alert():
    assert tls_alert(OSError(1, "not permitted")) is None
