"""Reads one settings dict of Django into a frozen dataclass; what is wrong becomes findings."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from .findings import Finding, Level

__all__ = ["read_settings", "setting_name"]

T = TypeVar("T")


def setting_name(field_name: str) -> str:
    """The key in the settings dict for a dataclass field: upper case."""
    return field_name.upper()


def read_settings(cls: type[T], raw: object, *, name: str, code: str) -> tuple[T, list[Finding]]:
    """Build `cls` from the dict `settings.<name>`.

    A bad entry is a finding (with `code`) and the default is used in its place, so that one typing
    error never hides the others. The value of a field with metadata {"secret": True} is never quoted.
    Field types understood: bool, int, float, str, Mapping, tuple of a type or Any, and unions of these
    with None.
    """
    findings: list[Finding] = []

    def wrong(where: str, what: str, remedy: str) -> None:
        findings.append(Finding(code=code, level=Level.ERROR, what=what, where=where, remedy=remedy))

    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        wrong(f"settings.{name}", f"{name} is a {type(raw).__name__}, not a dict", f"Set {name} = {{...}}.")
        raw = {}
    known = {setting_name(f.name): f for f in fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in raw.items():
        where = f'settings.{name}["{key}"]'
        if key not in known:
            close = get_close_matches(str(key).upper(), known, n=1)
            hint = f'Did you mean "{close[0]}"?' if close else f"Known keys: {', '.join(sorted(known))}."
            wrong(where, f"unknown key {key!r}", f"{hint} Remove or rename it.")
            continue
        field = known[key]
        fitted, ok = _fit(value, hints[field.name])
        if ok:
            values[field.name] = fitted
        else:
            default = field.default if field.default is not MISSING else "see the reference"
            wrong(
                where,
                f"{_shown(value, field)} is a {type(value).__name__}, "
                f"expected {_type_name(hints[field.name])}",
                f"Give a value of that type, or remove the key for the default ({default!r}).",
            )
    return cls(**values), findings


def _shown(value: Any, field: Field[Any]) -> str:
    # Findings are printed: a key of the wrong type is still a key.
    return "the value (hidden)" if field.metadata.get("secret") else repr(value)


def _fit(value: Any, hint: Any) -> tuple[Any, bool]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        for option in typing.get_args(hint):
            fitted, ok = _fit(value, option)
            if ok:
                return fitted, True
        return None, False
    if hint is type(None):
        return None, value is None
    if hint is bool:
        return value, isinstance(value, bool)
    if hint is float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        return (float(value) if good else None), good
    if hint is int:
        return value, isinstance(value, int) and not isinstance(value, bool)
    if origin is tuple:
        member = typing.get_args(hint)[0]
        good = isinstance(value, (list, tuple, set, frozenset)) and all(
            member is Any or isinstance(v, member) for v in value
        )
        return (tuple(value) if good else None), good
    if origin is not None and issubclass(origin, Mapping):
        return value, isinstance(value, Mapping)
    return value, isinstance(value, origin or hint)


def _type_name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "").replace("collections.abc.", "")
