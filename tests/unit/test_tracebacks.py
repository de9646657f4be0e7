"""A traceback's text is Python's own, the first time and from then on."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from hardening import tracebacks
from hardening.tracebacks import traceback_text


def fails(depth: int = 5) -> None:
    if depth:
        fails(depth - 1)
    _ = (1 +
         1 / len(""))  # fmt: skip


def fails_for_a_cause() -> None:
    try:
        fails()
    except ZeroDivisionError as exc:
        raise ValueError("two\nlines") from exc


def fails_many_times() -> None:
    errors = []
    for function in (fails, fails_for_a_cause):
        try:
            function()
        except Exception as exc:
            errors.append(exc)
    try:
        fails_without_end()
    except RecursionError:
        raise ExceptionGroup("many", errors)  # noqa: B904 - the other one stands above it


def fails_without_end() -> None:
    fails_without_end()


def fails_without_source() -> None:
    exec("\n\nraise KeyError(1)")


def fails_in_a_circle() -> None:
    exc = ValueError()
    exc.__cause__ = exc
    raise exc


@pytest.mark.parametrize(
    "function", [fails, fails_for_a_cause, fails_many_times, fails_without_source, fails_in_a_circle]
)
def test_it_is_as_python_prints_it(function: Callable[[], None]) -> None:
    for _ in range(2):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each another one
            function()
        exc = caught.value
        for trace in (exc.__traceback__, None):
            assert traceback_text(exc, trace) == "".join(traceback.format_exception(type(exc), exc, trace))


def test_frames_are_kept_within_bounds(monkeypatch) -> None:
    monkeypatch.setattr(tracebacks, "_MOST_KNOWN", 10)
    for number in range(50):
        with pytest.raises(RuntimeError) as caught:
            exec(f"def f{number}(): raise RuntimeError\nf{number}()")
        traceback_text(caught.value, caught.value.__traceback__)

    assert 0 < len(tracebacks._known) <= 10
