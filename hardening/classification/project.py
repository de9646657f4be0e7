"""Reads a project's own rules, HARDENING["CLASSIFY"] and a task's `classify`; what is wrong is a finding."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from django.utils.module_loading import import_string

from hardening.core.findings import Finding, Level

from .classifier import class_name
from .project_codes import any_code, as_code
from .rule import Rule
from .verdict import Kind, Verdict

__all__ = ["CODE", "SETTING", "project_rules", "task_rules"]

CODE = "CH013"
SETTING = 'settings.HARDENING["CLASSIFY"]'

_KINDS = tuple(kind.value for kind in Kind)
_KEYS = ("codes", "dependency", "exact", "name", "read", "retry", "retry_after", "verdict", "when", "why")
_EXAMPLE = '{"acme.client.Busy": "transient"}'
_MISSING: Any = object()


def project_rules(raw: Any) -> tuple[tuple[Rule, ...], list[Finding]]:
    """The rules of HARDENING["CLASSIFY"] and what is wrong with it. Bad entries leave the others in force.

    Imports what is given by dotted path, so Django's apps must be loaded.
    """
    reader = _Reader(label="project", place=SETTING)
    return tuple(reader.rules(raw)), reader.findings


def task_rules(task: Any) -> tuple[tuple[Rule, ...], list[Finding]]:
    """The rules of a task's attribute `classify` and what is wrong with it; none where it has none.

    The attribute has the form of the setting, or is a function or method that takes the error and
    answers "permanent", "transient", "unknown", a Verdict, or None to let the other rules decide.
    """
    raw = inspect.getattr_static(task, "classify", None)
    if raw is None:
        return (), []
    reader = _Reader(label="task", place=f"classify of task {getattr(task, 'name', task)}")
    if isinstance(raw, (staticmethod, classmethod)) or inspect.isroutine(raw) or _is_callable(raw):
        return tuple(reader.function(raw, task)), reader.findings
    return tuple(reader.rules(raw)), reader.findings


class _Unusable(Exception):
    """What is wrong with an entry, and what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy


@dataclass
class _Reader:
    """Reads one value. Each part that cannot be used is a finding, and the rest is read on."""

    label: str
    place: str
    findings: list[Finding] = field(default_factory=list)

    def rules(self, raw: Any) -> Iterator[Rule]:
        if isinstance(raw, Rule):
            yield raw
        elif isinstance(raw, Mapping):
            for key, value in raw.items():
                yield from self._entries(key, value)
        elif isinstance(raw, (list, tuple)):
            for number, each in enumerate(raw):
                if isinstance(each, Rule):
                    yield each
                else:
                    self._wrong(
                        f"{self.place}[{number}]",
                        f"a {type(each).__name__} is no rule",
                        f"Put a hardening Rule there, or write a mapping such as {_EXAMPLE}.",
                    )
        else:
            self._wrong(
                self.place,
                f"a {type(raw).__name__} says nothing of errors",
                f"Write a mapping such as {_EXAMPLE}, or a sequence of rules.",
            )

    def function(self, raw: Any, task: Any) -> Iterator[Rule]:
        """A function of a task: one rule about every error."""
        try:
            says = _one_argument(raw, task)
        except _Unusable as unusable:
            self._wrong(self.place, unusable.what, unusable.remedy)
            return
        yield Rule(
            name=f"{self.label}: classify",
            classes=("BaseException",),
            says=functools.partial(_said, says),
            why="The task's own function says so.",
        )

    def _entries(self, key: Any, value: Any) -> Iterator[Rule]:
        where = f"{self.place}[{key!r}]"
        try:
            name = _class_key(key)
        except _Unusable as unusable:
            self._wrong(where, unusable.what, unusable.remedy)
            return
        several = isinstance(value, (list, tuple))
        for number, each in enumerate(value if several else [value]):
            here = f"{where}[{number}]" if several else where
            default_name = f"{self.label}: {name}" + (f" ({number + 1})" if number else "")
            try:
                yield _rule(name, each, default_name)
            except _Unusable as unusable:
                self._wrong(here, unusable.what, unusable.remedy)

    def _wrong(self, where: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(code=CODE, level=Level.ERROR, what=what, where=where, remedy=remedy))


def _class_key(key: Any) -> str:
    if isinstance(key, type) and issubclass(key, BaseException):
        return class_name(key)
    if not isinstance(key, str) or not key or any(not part for part in key.split(".")):
        raise _Unusable(f"{key!r} names no class of errors", 'Write its dotted path: "acme.client.Busy".')
    name = key.removeprefix("builtins.")
    if "." not in name and not _is_error(getattr(builtins, name, None)):
        close = get_close_matches(
            name, [each for each in dir(builtins) if _is_error(getattr(builtins, each))]
        )
        hint = f'Did you mean "{close[0]}"? ' if close else ""
        raise _Unusable(
            f"Python has no error {name!r}", f"{hint}Write the module of a class too: acme.client.{name}."
        )
    return name


def _is_error(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseException)


def _rule(name: str, value: Any, default_name: str) -> Rule:
    if isinstance(value, Rule):
        return value if name in value.classes else replace(value, classes=(*value.classes, name))
    if isinstance(value, str):
        return Rule(name=default_name, classes=(name,), verdict=_kind(value))
    if not isinstance(value, Mapping):
        raise _Unusable(
            f"{value!r} is a {type(value).__name__}, which says nothing of an error",
            f"Write one of {', '.join(_KINDS)}, or a mapping with the key verdict.",
        )
    for key in value:
        if key not in _KEYS:
            raise _Unusable(f"unknown key {key!r}", _did_you_mean(key, _KEYS))
    codes = _codes(value.get("codes"))
    verdict = _kind(value["verdict"]) if value.get("verdict") is not None else None
    if verdict is None and not codes:
        raise _Unusable("neither verdict nor codes says what the error is", 'Add "verdict": "transient".')
    read = _function(value, "read")
    if codes and read is None:
        read = functools.partial(any_code, known=frozenset(codes))
    elif read is not None:
        read = functools.partial(_read, read)
    return Rule(
        name=_text(value, "name") or default_name,
        classes=(name,),
        verdict=verdict,
        read=read,
        decide=codes.get if codes else None,
        when=_function(value, "when"),
        retry_after=_wait(value),
        dependency=_dependency(value.get("dependency")),
        retry=_retry(value.get("retry")),
        exact=_flag(value, "exact"),
        why=_text(value, "why"),
    )


def _kind(word: Any) -> Kind:
    try:
        return Kind(word)
    except ValueError:
        raise _Unusable(f"{word!r} is no verdict", _did_you_mean(word, _KINDS)) from None


def _did_you_mean(word: Any, known: tuple[str, ...]) -> str:
    close = get_close_matches(str(word).lower(), known, n=1)
    return (f'Did you mean "{close[0]}"? ' if close else "") + f"Known are: {', '.join(known)}."


def _codes(raw: Any) -> dict[str, Kind]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise _Unusable(
            f"codes is a {type(raw).__name__}, not a mapping", 'Write "codes": {"503": "transient"}.'
        )
    return {str(as_code(code)): _kind(word) for code, word in raw.items()}


def _function(entry: Mapping[str, Any], key: str) -> Callable[[BaseException], Any] | None:
    raw = entry.get(key)
    if raw is None:
        return None
    found = _imported(key, raw) if isinstance(raw, str) else raw
    if not callable(found):
        raise _Unusable(
            f"{key} is {raw!r}, which cannot be called", f"Give a function for {key}, or its path."
        )
    function: Callable[[BaseException], Any] = found
    return function


def _imported(key: str, path: str) -> Any:
    try:
        return import_string(path)
    except Exception as exc:  # A project's module may break on anything.
        raise _Unusable(
            f"{key} names {path!r}, which cannot be imported: {type(exc).__name__}: {exc}",
            "Write the dotted path of a function in a module that can be imported.",
        ) from exc


def _wait(entry: Mapping[str, Any]) -> Callable[[BaseException], Any] | None:
    raw = entry.get("retry_after")
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        if not 0 <= raw < math.inf:
            raise _Unusable(f"retry_after is {raw!r}", "Give seconds from 0 on.")
        seconds = float(raw)
        return lambda _exc: seconds
    return _function(entry, "retry_after")


def _dependency(raw: Any) -> str | Callable[[BaseException], str | None] | None:
    """A tag, a function, or its dotted path. A text whose module does not exist is a tag: a host name."""
    if raw is None or (isinstance(raw, str) and raw and "." not in raw):
        return raw or None
    found = raw
    if isinstance(raw, str):
        try:
            found = import_string(raw)
        except ModuleNotFoundError as exc:
            if exc.name and (raw == exc.name or raw.startswith(f"{exc.name}.")):
                return raw
            _imported("dependency", raw)  # Of a module that it imports: the finding says so.
        except Exception:
            if raw.startswith(".") or raw.endswith("."):
                raise _Unusable(f"dependency is {raw!r}", "Give a tag, or the path of a function.") from None
            found = _imported("dependency", raw)
    if not callable(found):
        raise _Unusable(f"dependency is {raw!r}", "Give a tag, a function, or the path of a function.")
    return functools.partial(_read, found)


def _retry(raw: Any) -> Any:
    if raw is None:
        return None
    # Late: rules are read where nothing is retried, too.
    from hardening.retries.policy import RetryPolicy

    if isinstance(raw, RetryPolicy):
        return raw
    try:
        return RetryPolicy.of(raw)
    except (TypeError, ValueError, AttributeError) as exc:
        raise _Unusable(
            f"retry cannot be used: {exc}", 'Write for example "retry": {"base": "5 s"}.'
        ) from exc


def _flag(entry: Mapping[str, Any], key: str) -> bool:
    flag = entry.get(key, False)
    if not isinstance(flag, bool):
        raise _Unusable(f"{key} is {flag!r}, not True or False", f"Write True or False for {key}.")
    return flag


def _text(entry: Mapping[str, Any], key: str) -> str:
    text = entry.get(key, "")
    if not isinstance(text, str):
        raise _Unusable(f"{key} is a {type(text).__name__}, not a text", f"Write {key} as a text.")
    return text


def _read(read: Callable[[BaseException], Any], exc: BaseException) -> str | None:
    return as_code(read(exc))


def _is_callable(raw: Any) -> bool:
    return callable(raw) and not isinstance(raw, (type, Rule))


def _one_argument(raw: Any, task: Any) -> Callable[[BaseException], Any]:
    """The function as it takes an error alone: one of the task's own methods takes the task before it."""
    if isinstance(raw, staticmethod):
        raw = raw.__func__
    elif isinstance(raw, classmethod):
        raw = functools.partial(raw.__func__, task if isinstance(task, type) else type(task))
    error = _MISSING
    try:
        signature = inspect.signature(raw)
    except (TypeError, ValueError):  # Written in C: it is taken at its word.
        function: Callable[[BaseException], Any] = raw
        return function
    for before in ((), (task,)):
        try:
            signature.bind(*before, error)
        except TypeError:
            continue
        return functools.partial(raw, *before)
    raise _Unusable(
        "classify does not take an error", "Write classify(exc), or a method classify(self, exc)."
    )


def _said(says: Callable[[BaseException], Any], exc: BaseException) -> Kind | Verdict | None:
    said = says(exc)
    return said if said is None or isinstance(said, Verdict) else Kind(said)
