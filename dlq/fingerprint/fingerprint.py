"""Puts together what names the cause of a failure. Pure, never raises, and its work is bounded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .frames import Frame, Raised, read_traceback
from .names import class_name
from .project import module_of, root_package, stem_of
from .scrub import scrub

__all__ = ["VERSION", "Fingerprint", "fingerprint_of"]

VERSION = "1"
"""Of the way it is made. Whoever changes that counts it up: `manage.py dlq_regroup` does the rest."""

_TITLE_LENGTH = 255
# What is longer is cut before anything looks at it, so that the work does not grow with the text.
_LONGEST_MESSAGE = 1_000
_LONGEST_NAME = 500
_TRACEBACK_HEAD, _TRACEBACK_TAIL = 12_000, 36_000
_CUT = "\n[... cut ...]\n"
# Of a recursion that ran into Python's limit, which of its frames is the innermost is chance.
_RECURSION = "RecursionError"
_ROUNDS_LOOKED_AT = 60
# These stories have optional parts, and their class says it all.
_TOLD_BY_CLASS = frozenset({"poison"})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`value` names the cause; `title` is the message without what varies; `place` where it was raised."""

    value: str
    title: str
    place: str


def fingerprint_of(
    *,
    task_name: str,
    reason: str,
    error_class: str,
    message: str,
    traceback: str,
    budget_seconds: float = 0.02,
    packages: Iterable[str] = (),
) -> Fingerprint:
    """The same value for each letter of one cause: same task, class of error and statement of the project.

    `packages`: those of the project, where paths do not tell. `budget_seconds`: of processor time, so that a
    busy machine changes nothing. What is not told by then, is told by task, reason and class alone; it would
    need a text that the limits here do not foresee.
    """
    task, reason, error = (str(each)[:_LONGEST_NAME] for each in (task_name, reason, error_class))
    try:
        return _Cause(task, reason, error, packages, time.thread_time() + budget_seconds).told(
            str(message), str(traceback)
        )
    except Exception:  # A letter is stored whatever its texts are.
        return _fingerprint([task, "untold", reason, class_name(error)], "", "")


class _OutOfTimeError(Exception):
    pass


class _Cause:
    def __init__(self, task: str, reason: str, error: str, packages: Iterable[str], deadline: float) -> None:
        self._task, self._reason, self._error, self._deadline = task, reason, error, deadline
        named = frozenset(packages)
        self._only = bool(named)
        self._packages = named | {root_package(task)}

    def told(self, message: str, traceback: str) -> Fingerprint:
        self._in_time()
        words = scrub(_first_line(message[:_LONGEST_MESSAGE]))
        title = words[:_TITLE_LENGTH]
        self._in_time()
        chain = read_traceback(_shortened(traceback, message))
        self._in_time()
        last = chain[-1]
        error = class_name(self._error or last.error_class)
        where = self._where(last, error)
        members = self._members(last)
        if not where and not members:
            told = error if self._reason in _TOLD_BY_CLASS else words
            return _fingerprint([self._task, "words", self._reason, error, told], title, "")
        place = self._place(last)
        parts = [self._task, "place", error, *where, *members, *self._first_cause(chain)]
        if where and not where[-1]:
            parts += ["words", words]  # Without the source, a function is all that is known of the place.
        return _fingerprint(parts, title, place)

    def _first_cause(self, chain: list[Raised]) -> list[str]:
        """Of `raise ... from`: the class of what came first, and the first place in the project."""
        error, where = "", list[str]()
        for raised in reversed(chain[:-1]):
            if not raised.causes_next:
                break
            error = class_name(raised.error_class)
            where = [*self._where(raised, error), *self._members(raised)] or where
        return ["caused by", error, *where] if error else []

    def _members(self, raised: Raised) -> list[str]:
        """What the exceptions of a group have in common with those of another, however many they are."""
        told = {
            "\x1e".join([error, *self._where(member, error)])
            for member in raised.members
            if not member.is_group and (error := class_name(member.error_class))
        }
        return ["with", *sorted(told)] if told else []

    def _where(self, raised: Raised, error: str) -> list[str]:
        frames = raised.frames
        if error == _RECURSION and (rounds := self._rounds(frames)):
            return rounds
        found = self._innermost(frames)
        return _statement(*found) if found else []

    def _rounds(self, frames: list[Frame]) -> list[str]:
        """The statements that come again and again, in an order that does not depend on the last one."""
        times: dict[tuple[str, ...], int] = {}
        for frame in frames[-_ROUNDS_LOOKED_AT:]:
            if module := self._module(frame):
                key = tuple(_statement(frame, module))
                times[key] = times.get(key, 0) + frame.times
        return [part for key in sorted(times) if times[key] > 1 for part in key]

    def _innermost(self, frames: list[Frame]) -> tuple[Frame, str] | None:
        for frame in reversed(frames):
            if module := self._module(frame):
                return frame, module
        return None

    def _place(self, raised: Raised) -> str:
        for each in (raised, *raised.members):
            if found := self._innermost(each.frames):
                return f"{found[1]}:{found[0].function}"[:_TITLE_LENGTH]
        return ""

    def _module(self, frame: Frame) -> str | None:
        return module_of(frame.path, self._packages, only=self._only)

    def _in_time(self) -> None:
        if time.thread_time() > self._deadline:
            raise _OutOfTimeError


def _statement(frame: Frame, module: str) -> list[str]:
    # By the file's name and not its package: the same file may be imported from another folder.
    return [stem_of(module), frame.function, " ".join(frame.source.split())]


def _first_line(text: str) -> str:
    for line in text.splitlines():
        if line.strip():
            return line.strip()
    return ""


def _shortened(traceback: str, message: str) -> str:
    if len(traceback) > _TRACEBACK_HEAD + _TRACEBACK_TAIL:
        traceback = traceback[:_TRACEBACK_HEAD] + _CUT + traceback[-_TRACEBACK_TAIL:]
    known = message[:_LONGEST_MESSAGE]
    if "\n" in known:
        # What the message says, it does not say as part of the traceback.
        traceback = traceback.replace(f": {known}", ":")
    return traceback


def _fingerprint(parts: list[str], title: str, place: str) -> Fingerprint:
    text = "\x1f".join(parts)
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return Fingerprint(value=f"{VERSION}-{digest[:32]}", title=title, place=place)
