"""Reads the text of a traceback as Python 3.11 to 3.14 print it. Pure, one pass, and no text is too odd.

What follows an exception's line belongs to its message until a link of the chain says otherwise, so a message
that looks like a traceback is not taken for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Frame", "Raised", "read_traceback"]

_HEADER = "Traceback (most recent call last):"
_GROUP_HEADER = "Exception Group Traceback (most recent call last):"
_CAUSED = "The above exception was the direct cause of the following exception:"
_HANDLING = "During handling of the above exception, another exception occurred:"
# What the capture leaves in place of the middle of a long traceback.
_CUT = "[... cut ...]"
# The message of such a cause is the traceback of another process, in quotes: it is read as the cause's own.
_REMOTE, _REMOTE_QUOTE = "RemoteTraceback", '"""'

_FRAME = re.compile(r'  File "([^"\n]{1,1000})", line \d{1,9}, in (.{1,300})$')
_REPEATED = re.compile(r"  \[Previous line repeated (\d{1,9}) more times?\]$")
_CLASS = re.compile(r"([^\W\d]\w*(?:\.(?:<locals>|[^\W\d]\w*))*)(?::|$)")
_RAIL = re.compile(r" *[|+] ?")
_MEMBER = re.compile(r" *\+(?:-\+)?-{4,}")
_FIRST_MEMBER = "  +-+-"
# Inlined from Python 3.12 on.
_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_MOST_FRAMES = 200
# Of more lines than these (a text of 48,000 characters with real ones has some 1,200) the middle is left out.
_FIRST_LINES, _LAST_LINES = 400, 1600


class Frame(NamedTuple):
    """`function` is the one that holds the comprehension, where it is one. `source`: the first line shown of
    the statement, "" where the source was not at hand. `times`: how often in a row."""

    path: str
    function: str
    source: str
    times: int = 1


@dataclass(slots=True)
class Raised:
    """One exception of a chain: its class as printed, its frames, outermost first (of many the innermost),
    the exceptions of a group, whether it is the direct cause of the next one."""

    error_class: str = ""
    frames: list[Frame] = field(default_factory=list)
    members: list[Raised] = field(default_factory=list)
    is_group: bool = False
    causes_next: bool = False


def read_traceback(text: str) -> list[Raised]:
    """The chain, the first exception first. Of each member of a group only what it is itself."""
    lines = text.split("\n")
    if len(lines) > _FIRST_LINES + _LAST_LINES:
        lines = [*lines[:_FIRST_LINES], _CUT, *lines[-_LAST_LINES:]]
    if _GROUP_HEADER not in text:
        return _chain(lines)
    outer, sections = _without_rails(lines)
    chain = _chain(outer)
    groups = [raised for raised in chain if raised.is_group]
    for group, members in zip(groups, sections, strict=False):
        group.members = [part[-1] for lines_of in members if (part := _chain(lines_of))]
    return chain


def _without_rails(lines: list[str]) -> tuple[list[str], list[list[list[str]]]]:
    """The lines of the chain itself, and for each group in it those of each member, nested ones too."""
    outer: list[str] = []
    groups: list[list[list[str]]] = []
    inside = False
    for line in lines:
        if inside and _MEMBER.match(line):
            if line.startswith(_FIRST_MEMBER) or not groups:
                groups.append([])
            groups[-1].append([])
        elif line.startswith("    ") and inside and groups and (rail := _RAIL.match(line)):
            groups[-1][-1].append(line[rail.end() :])
        elif line.startswith(("  + " + _GROUP_HEADER, "  | ")):
            inside = True
            outer.append(line[4:])
        else:
            outer.append(line)
    return outer, groups


def _chain(lines: list[str]) -> list[Raised]:
    reader = _Reader(lines)
    for at, line in enumerate(lines):
        if reader.in_message:
            reader.read_message(at, line)
        elif line.startswith("  "):
            reader.read_frame(at, line)
        else:
            reader.read_mark(at, line)
    chain = reader.chain
    if len(chain) > 1 and not chain[-1].error_class and not chain[-1].frames:
        chain.pop()
    return chain


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.chain = [Raised()]
        self.in_message = False
        self._after_cut = False

    def read_message(self, at: int, line: str) -> None:
        if line in (_CAUSED, _HANDLING) and _stands_alone(self._lines, at):
            self.chain[-1].causes_next = line == _CAUSED
            self._begin_another()
        elif line == _CUT:
            self._after_cut = True
        elif self._after_cut and _FRAME.match(line):
            # The cut took the end of the message, and how the next exception came about.
            self._begin_another()
            _add_frame(self.chain[-1], self._lines, at)

    def read_frame(self, at: int, line: str) -> None:
        frames = self.chain[-1].frames
        if line.startswith('  File "'):
            _add_frame(self.chain[-1], self._lines, at)
        elif frames and (repeated := _REPEATED.match(line)):
            frames[-1] = frames[-1]._replace(times=frames[-1].times + int(repeated[1]))

    def read_mark(self, at: int, line: str) -> None:
        if line == _CUT:
            self._after_cut = True
        elif line == _GROUP_HEADER:
            self.chain[-1].is_group = True
        elif line and line not in (_HEADER, _REMOTE_QUOTE) and not line.startswith(" "):
            if name := _CLASS.match(line):
                self.chain[-1].error_class = name[1]
                self.in_message = not name[1].endswith(_REMOTE)
            else:
                # A line that the cut has halved says nothing.
                self.in_message = at == 0 or self._lines[at - 1] != _CUT

    def _begin_another(self) -> None:
        self.chain.append(Raised())
        self.in_message = False


def _stands_alone(lines: list[str], at: int) -> bool:
    return 0 < at < len(lines) - 1 and not lines[at - 1] and not lines[at + 1]


def _add_frame(raised: Raised, lines: list[str], at: int) -> None:
    found = _FRAME.match(lines[at])
    if found is None:
        return
    path, function = found[1], found[2]
    if function in _COMPREHENSIONS and raised.frames and raised.frames[-1].path == path:
        function = raised.frames[-1].function
    below = lines[at + 1] if at + 1 < len(lines) else ""
    source = below.strip() if below.startswith("    ") else ""
    raised.frames.append(Frame(path, function, source))
    if len(raised.frames) > 2 * _MOST_FRAMES:
        del raised.frames[:_MOST_FRAMES]
