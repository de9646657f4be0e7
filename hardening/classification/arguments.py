"""Tells a call with the wrong arguments from a TypeError inside the task. Pure."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["wrong_arguments"]

_TRACEBACK: Any = vars(BaseException)["__traceback__"]
_ARGS: Any = vars(BaseException)["args"]


def wrong_arguments(
    exc: BaseException, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether `function(*args, **kwargs)` raised `exc` because it does not take these arguments.

    True only where everything agrees: Python's own words about a call, of one of the functions that
    were called (decorators looked through); a signature that does not take the arguments; and a
    traceback that never entered the innermost function. A decorator that adds an argument of its own
    is no wrong call, and neither is a wrong call that the task makes itself.
    """
    if type(exc) is not TypeError:
        return False
    try:
        chain = list(_chain(function))
        return (
            _speaks_of_a_call(exc, chain)
            and not _entered(exc, chain[-1])
            and not (_takes(function, args, kwargs, through=False) and _takes(function, args, kwargs))
        )
    except Exception:  # Objects of any kind, with attributes of any kind: then it is not told apart.
        return False


def _chain(function: Any) -> Iterator[Any]:
    """The functions that a call goes through, as far as they say whom they wrap; the innermost last."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        if inspect.ismethod(function):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif not hasattr(function, "__code__") and not isinstance(function, type):
            call: Any = inspect.getattr_static(type(function), "__call__", None)
            function = call if hasattr(call, "__code__") else function
        yield function
        function = getattr(function, "__wrapped__", function)


def _speaks_of_a_call(exc: BaseException, chain: Sequence[Any]) -> bool:
    """Python says "name() missing 1 required ..." where a call does not fit, raised by the caller."""
    words = _ARGS.__get__(exc)
    if len(words) != 1 or type(words[0]) is not str:
        return False
    return any(words[0].startswith(f"{getattr(each, '__qualname__', '?')}() ") for each in chain)


def _entered(exc: BaseException, function: Any) -> bool:
    code = getattr(function, "__code__", None)
    step = _TRACEBACK.__get__(exc)
    while step is not None:
        if step.tb_frame.f_code is code:
            return True
        step = step.tb_next
    return False


def _takes(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, through: bool = True) -> bool:
    signature = inspect.signature(function, follow_wrapped=through)
    positional, named = tuple(args), dict(kwargs)
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True
