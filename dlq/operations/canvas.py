"""What goes on, and what does not, when a member of a chain, group or chord is sent again. Pure.

A message carries the rest of its chain and its callbacks: whoever runs it to its end sends them on, a replay
as the first life would have done. So the rest of a chain is re-run by replaying the task that failed.

What waits for a task by its id does not know the id of its replay. A chord has counted its member as failed
and is over: its body never runs, whatever becomes of the replay. It is run again as a whole, in a new chord
with a new body: see `chord_rerun`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from hardening.core.letter import DeadLetter as LetterRecord

from .states import Kind

__all__ = ["Level", "Note", "canvas_of_row", "continuation"]

_MOST_NAMES = 5


class Level(StrEnum):
    """How much a note matters."""

    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing to know before sending. `topic`: chain, callbacks, errbacks, group, chord."""

    topic: str
    level: Level
    goes_on: bool
    text: str | Promise


def continuation(record: LetterRecord, kind: Kind) -> tuple[Note, ...]:
    """For a letter that was opened."""
    return canvas_of_row(asdict(record.canvas), kind)


def canvas_of_row(
    canvas: Mapping[str, Any] | None, kind: Kind, *, whole_chord: bool = False
) -> tuple[Note, ...]:
    """For the column `canvas` of a letter. Empty: it is no member of anything. `whole_chord`: its chord runs
    again with it."""
    found = canvas or {}
    notes = [
        *_chain(found.get("chain") or (), kind),
        *_callbacks(found.get("callbacks") or ()),
        *_errbacks(found.get("errbacks") or ()),
    ]
    if found.get("chord"):
        notes.append((_whole_chord if whole_chord else partial(_chord, kind))(str(found["chord"])))
    elif found.get("group"):
        notes.append(_group(kind))
    return tuple(notes)


def _chain(names: Sequence[str], kind: Kind) -> list[Note]:
    if not names:
        return []
    # A chain is stored from its end.
    rest = _list(list(reversed(names)))
    text = _("The rest of its chain goes on when it succeeds: {rest}.")
    if kind is Kind.COPY:
        text = _(
            "The rest of its chain goes on when it succeeds: {rest}. It has the task ids of the first one: "
            "if the letter is replayed as well, it runs twice."
        )
    level = Level.WARNING if kind is Kind.COPY else Level.INFO
    return [Note(topic="chain", level=level, goes_on=True, text=format_lazy(text, rest=rest))]


def _callbacks(names: Sequence[str]) -> list[Note]:
    if not names:
        return []
    text = format_lazy(_("Its callbacks are sent when it succeeds: {names}."), names=_list(names))
    return [Note(topic="callbacks", level=Level.INFO, goes_on=True, text=text)]


def _errbacks(names: Sequence[str]) -> list[Note]:
    if not names:
        return []
    text = _("Its errbacks were called when it failed, and are called again if it fails again: {names}.")
    return [
        Note(topic="errbacks", level=Level.INFO, goes_on=True, text=format_lazy(text, names=_list(names)))
    ]


def _group(kind: Kind) -> Note:
    text = _(
        "It is a member of a group, whose result names the task id that failed: it stays failed there. The "
        "others of the group are not touched."
    )
    if kind is Kind.COPY:
        text = _("It was a member of a group. The copy is in none.")
    return Note(topic="group", level=Level.WARNING, goes_on=False, text=text)


def _whole_chord(name: str) -> Note:
    text = _(
        "Its chord runs again as a whole: all members do their work, also those that had succeeded, and then "
        "the body, {name}, runs."
    )
    return Note(topic="chord", level=Level.WARNING, goes_on=True, text=format_lazy(text, name=name))


def _chord(kind: Kind, name: str) -> Note:
    text = _(
        "It is a member of a chord that has counted it as failed: the body of the chord, {name}, does not "
        "run after a replay. To have it run, re-run the whole chord from the page of the letter, or by "
        "dlq_replay --chord."
    )
    if kind is Kind.COPY:
        text = _(
            "It was a member of a chord with the body {name}. The copy is in none: the body does not run "
            "after it."
        )
    return Note(topic="chord", level=Level.WARNING, goes_on=False, text=format_lazy(text, name=name))


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown}, … ({len(names)})" if len(names) > _MOST_NAMES else shown
