"""A call with the wrong arguments is told from a TypeError inside the task."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from hardening.classification.arguments import wrong_arguments


def raised(function: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether the TypeError of this very call is one of wrong arguments."""
    with pytest.raises(TypeError) as caught:
        function(*args, **kwargs)
    return wrong_arguments(caught.value, function, args, kwargs)


def ship(order: int, *, fast: bool = False) -> None:
    if order == 0:
        ship()  # type: ignore[call-arg]
    if order < 0:
        raise TypeError("ship() takes no negative order")
    len(order)  # type: ignore[arg-type]


def passing_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def with_client(function: Any) -> Any:
    """Adds an argument of its own."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not args:
            len(None)  # type: ignore[arg-type]
        return function("client", *args, **kwargs)

    return wrapper


@with_client
def ship_with(client: str, order: int) -> None:
    len(order)  # type: ignore[arg-type]


class Task:
    def run(self, order: int) -> None:
        len(order)  # type: ignore[arg-type]

    def __call__(self, order: int) -> None:
        len(order)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"speed": 3}), ((1,), {"order": 1})]
)
def test_a_call_that_the_signature_does_not_take_is_wrong(args, kwargs) -> None:
    assert raised(ship, *args, **kwargs)
    assert raised(passing_on(passing_on(ship)), *args, **kwargs)
    assert raised(Task().run, *args, **kwargs)
    assert raised(Task(), *args, **kwargs)
    assert raised(functools.partial(ship, fast=True), *args, **kwargs)


@pytest.mark.parametrize("order", [0, -1, 7])
def test_a_type_error_inside_the_task_is_none_even_of_a_wrong_call_to_itself(order) -> None:
    assert not raised(ship, order)
    assert not raised(passing_on(ship), order)
    assert order == 0 or not raised(Task().run, order)


def test_an_argument_that_a_decorator_adds_is_not_missing() -> None:
    assert not raised(ship_with, 7)  # Inside of the task.
    assert not raised(ship_with)  # Inside of the decorator.


def test_a_decorator_that_takes_less_than_the_task_is_called_wrongly() -> None:
    @functools.wraps(ship_with)
    def strict(order: int) -> None:
        pass

    assert raised(strict, 1, 2)


def test_an_error_that_is_not_of_this_call_is_none() -> None:
    with pytest.raises(TypeError) as caught:
        ship()  # type: ignore[call-arg]

    assert not wrong_arguments(caught.value, ship, (1,), {})
    assert not wrong_arguments(caught.value, passing_on, (), {})
    assert not wrong_arguments(ValueError("ship() missing"), ship, (), {})
    assert not wrong_arguments(TypeError(), ship, (), {})
    assert not wrong_arguments(TypeError(object()), ship, (), {})


def test_what_cannot_be_looked_into_is_not_told_apart() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise ValueError

    for function in (Hostile(), 7, None, print, dict.fromkeys):
        assert not wrong_arguments(TypeError("x() missing"), function, (), {})  # type: ignore[arg-type]
    assert not wrong_arguments(TypeError("ship() missing"), ship, None, None)  # type: ignore[arg-type]
