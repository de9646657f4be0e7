"""Finds an error class by its dotted path. Imports its module, as an operator's command may."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from .classification.classifier import class_name
from .core.errors import HardeningError

__all__ = ["ErrorClass", "NoErrorClass", "find_error"]


class NoErrorClass(HardeningError):
    """The path leads to no error class; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorClass:
    """`cls` is None where only the name is known; `note` then says why."""

    name: str
    cls: type[BaseException] | None
    note: str = ""


def find_error(path: str, *, named_by_rules: Iterable[str] = ()) -> ErrorClass:
    """The class of "module.Class", "module.Outer.Class", or of a builtin's bare name.

    Where its module is not here or breaks, the bare name is judged. `named_by_rules` are the classes
    that rules name: they need not be importable, and are suggested. Raises NoErrorClass.
    """
    known = set(named_by_rules)
    name = path.strip().removeprefix("builtins.")
    if not name or any(not part for part in name.split(".")):
        raise NoErrorClass(f"{path!r} is no dotted path. {_EXAMPLE}")
    if "." not in name:
        return _builtin(name, known)
    if "<locals>" in name:
        return ErrorClass(name=name, cls=None, note="A class within a function cannot be imported.")
    module, rest, broken = _module_of(name)
    if broken:
        return ErrorClass(name=name, cls=None, note=broken)
    if module is None:
        root = name.partition(".")[0]
        if name in known:
            return ErrorClass(name=name, cls=None, note=f"{root} is not installed here.")
        raise NoErrorClass(
            f"There is no module {root!r} here, and no rule names {name!r}. {_meant(name, known)}"
            "Check the spelling, or run this where the worker's code is installed."
        )
    found = _attribute(module, rest)
    if found is None:
        if name in known:
            return ErrorClass(name=name, cls=None, note=f"This version of {module.__name__} has no {rest}.")
        raise NoErrorClass(f"{module.__name__} has no {rest!r}. {_meant(name, known | _errors_in(module))}")
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise NoErrorClass(f"{name} is a {type(found).__name__}, not an exception class. {_EXAMPLE}")
    return ErrorClass(name=class_name(found), cls=found)


_EXAMPLE = 'Give the path of an exception class, such as "requests.exceptions.HTTPError" or "ValueError".'


def _builtin(name: str, known: set[str]) -> ErrorClass:
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return ErrorClass(name=name, cls=found)
    same = sorted(each for each in known if each.rpartition(".")[2] == name)
    if same:
        raise NoErrorClass(f"Python has no exception {name!r}. Did you mean {', '.join(same[:5])}?")
    raise NoErrorClass(f"Python has no exception {name!r}. {_meant(name, _errors_in(builtins))}{_EXAMPLE}")


def _module_of(name: str) -> tuple[Any, str, str]:
    """The longest part that is a module, what follows it, and what broke on the way."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:length])
        try:
            return import_module(path), ".".join(parts[length:]), ""
        except ModuleNotFoundError as exc:
            if exc.name is None or not (path == exc.name or path.startswith(f"{exc.name}.")):
                return None, "", f"{path} cannot be imported: it needs {exc.name}, which is not installed."
        # A module may do anything when it is imported, even end the process.
        except (Exception, SystemExit) as exc:
            return None, "", f"{path} cannot be imported: {type(exc).__name__}: {exc}"
    return None, "", ""


def _attribute(module: Any, path: str) -> Any:
    found = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _errors_in(module: Any) -> set[str]:
    prefix = "" if module is builtins else f"{module.__name__}."
    return {
        f"{prefix}{name}"
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, BaseException)
    }


def _meant(name: str, known: set[str]) -> str:
    close = get_close_matches(name, sorted(known), n=3, cutoff=0.8)
    return f"Did you mean {', '.join(close)}? " if close else ""
