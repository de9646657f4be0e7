"""Durations are read as people write them, and a wrong one is named with what would be right."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardening.retries.durations import delays_of, seconds_of, text_of


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0),
        (1.5, 1.5),
        (timedelta(minutes=2), 120),
        ("30 s", 30),
        ("30s", 30),
        ("2 m", 120),
        ("8 min", 480),
        ("1 h", 3600),
        ("1 d", 86400),
        ("500 ms", 0.5),
        ("1 h 30 m", 5400),
        ("1h30m", 5400),
        (" 1.5 Hours ", 5400),
    ],
)
def test_a_duration_is_read_as_it_is_written(written, seconds) -> None:
    assert seconds_of(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "30",
        "s",
        "5 parsecs",
        "1 h 30",
        "-1 s",
        "1e3 s",
        "9" * 400 + " s",
        -1,
        math.nan,
        math.inf,
        10**400,
        True,
        None,
        timedelta(seconds=-1),
        [],
    ],
)
def test_what_is_no_duration_is_refused_with_the_accepted_forms(written) -> None:
    with pytest.raises(ValueError, match="is not a duration") as refused:
        seconds_of(written)
    assert '"1 h 30 m"' in str(refused.value)


def test_an_error_names_the_bad_value_and_stays_short() -> None:
    with pytest.raises(ValueError, match="'5 parsecs'"):
        seconds_of("5 parsecs")
    with pytest.raises(ValueError, match="is not a duration") as refused:
        seconds_of("x" * 10_000)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("written", ["0 s, 30 s, 2 m", ["0 s", 30, "2 m"], (0, timedelta(seconds=30), 120)])
def test_delays_are_read_from_a_text_or_a_sequence(written) -> None:
    assert delays_of(written) == (0, 30, 120)


@pytest.mark.parametrize("written", ["", "30 s,", ["x"], [], (), 30, None, {"a": 1}])
def test_what_is_no_list_of_delays_is_refused(written) -> None:
    with pytest.raises(ValueError, match="is not a"):
        delays_of(written)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (30, "30 s"),
        (59.7, "1 m"),
        (120, "2 m"),
        (5400, "1 h 30 m"),
        (3599.7, "1 h"),
        (86400, "1 d"),
        (90061, "1 d 1 h"),
        (math.inf, "no end"),
    ],
)
def test_a_duration_is_shown_short(seconds, text) -> None:
    assert text_of(seconds) == text


@settings(deadline=None, database=None)
@given(st.floats(min_value=0, max_value=1e12))
def test_what_is_shown_reads_as_nearly_the_same(seconds) -> None:
    assert seconds_of(text_of(seconds)) == pytest.approx(seconds, rel=0.05, abs=0.001)


@settings(deadline=None, database=None)
@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text) -> None:
    try:
        seconds = seconds_of(text)
    except ValueError:
        return
    assert 0 <= seconds < math.inf
