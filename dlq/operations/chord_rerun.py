"""Runs a chord that failed again as a whole: finds its members, and makes the operation that sends them.

A chord has failed when all its members have ended and one of them not well. Those that failed are dead
letters; the messages of those that succeeded are kept by the workers (`hardening.core.chord_members`), for a
day. All of them run again, in a new chord with a new body: the old one is over, and nothing can be added to
it. So a member that succeeded does its work once more; that is said before.

The argument. The operation is a replay of the letters, like any other: claimed, staged, published, marked,
each with its own outcome; their messages are edited, so that they are members of the new chord. What is owed
beside them, the members without a letter and the chord itself, is written in the transaction that makes the
operation (`OperationMessage`), and sent by its runner before the first letter (`chord_sending`).

It is made only when every member of the old chord is found. What changed until it is run: the letters are
claimed all together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from celery import Celery
from django.db import transaction

from hardening.core.chord_members import KeptChord, chord_members_of
from hardening.core.letter import DeadLetter as LetterRecord

from ..conf import database_alias, dlq_settings
from ..errors import CannotUnseal, NotRerun
from ..models import DeadLetter, Operation, OperationMessage
from ..sealing import Sealed, seal
from ..states import State
from .chord_messages import Seat, moved, new_chord, seat_of
from .making import make_operation
from .pace import Unlimited
from .records import sealed_record

__all__ = [
    "CHORD",
    "MOST_MEMBERS",
    "FoundChord",
    "FoundMember",
    "Standing",
    "find_chord",
    "make_chord_operation",
]

CHORD = "chord"
"""The kind of the source of such an operation."""

MOST_MEMBERS = 500
"""Each is a question to the store, and all are in one transaction."""

_LETTERS_APART = timedelta(days=2)


class Standing(StrEnum):
    """Where the message of a member is."""

    SUCCEEDED = "succeeded"
    LETTER = "dead letter"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMember:
    """A member of the old chord. `why`: why it cannot be sent, where it cannot."""

    index: int
    standing: Standing
    task_name: str = ""
    task_id: str = ""
    letter: UUID | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChord:
    """What was found of a chord. `problem`: why it cannot be run again; empty: it can."""

    group: str = ""
    body: str = ""
    size: int | None = None
    members: tuple[FoundMember, ...] = ()
    problem: str = ""

    def number(self, standing: Standing) -> int:
        """How many members stand so."""
        return sum(1 for each in self.members if each.standing is standing)

    @property
    def summary(self) -> str:
        """In a sentence."""
        counts = {each: self.number(each) for each in Standing}
        return (
            f"of {len(self.members)} members {counts[Standing.SUCCEEDED]} succeeded, "
            f"{counts[Standing.LETTER]} are dead letters, {counts[Standing.MISSING]} are missing"
        )

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        members = [
            {
                "index": each.index,
                "standing": each.standing.value,
                "task": each.task_name,
                "task_id": each.task_id,
                "letter": None if each.letter is None else str(each.letter),
                "why": each.why,
            }
            for each in self.members
        ]
        return {"group": self.group, "body": self.body, "members": members, "problem": self.problem}


@dataclass(slots=True, kw_only=True)
class _Found:
    """With the messages."""

    chord: FoundChord
    seat: Seat | None = None
    succeeded: Sequence[tuple[int, LetterRecord]] = ()
    letters: Sequence[tuple[UUID, LetterRecord]] = ()


def find_chord(letter: DeadLetter, *, over_limit: bool = False, app: Celery | None = None) -> FoundChord:
    """What is known of the chord of a letter. Never raises for what a message holds."""
    return _find(letter, over_limit=over_limit, app=app).chord


def make_chord_operation(
    letter: DeadLetter, *, by: str, why: str = "", over_limit: bool = False, app: Celery | None = None
) -> Operation:
    """A planned operation that runs the chord of this letter again. Raises NotRerun."""
    found = _find(letter, over_limit=over_limit, app=app)
    if found.chord.problem or found.seat is None:
        raise NotRerun(found.chord.problem)
    alias = database_alias()
    with transaction.atomic(using=alias):
        operation = make_operation(
            letters=[pk for pk, _ in found.letters],
            by=by,
            source={
                "kind": CHORD,
                "group": found.chord.group,
                "body": found.chord.body,
                "members": len(found.chord.members),
                "succeeded": len(found.succeeded),
            },
            why=why,
            pace=Unlimited(),
            pause_above_percent=100,
            pause_on_same_cause=False,
            over_limit=over_limit,
            app=app,
        )
        _write_messages(operation, found, found.seat, alias)
    return operation


def _write_messages(operation: Operation, found: _Found, seat: Seat, alias: str) -> None:
    """The new chord, what is owed beside the letters, and the letters as members of the new one."""
    chord = new_chord(operation.pk, seat)
    results: dict[int, str] = {}
    messages = []
    for position, (index, record) in enumerate(found.succeeded, start=1):
        results[index] = task_id = chord.rename(record.task_id)
        messages.append(_message(operation, position, task_id, sealed_record(moved(record, chord))))
    items = {item.letter_id: item for item in operation.items.using(alias).all()}
    for pk, record in found.letters:
        item, place = items[pk], _seat(record)
        direct = place.counts_as == record.task_id
        results[place.index] = item.task_id if direct else chord.rename(place.counts_as)
        sealed = sealed_record(moved(record, chord))
        item.sealed, item.sealed_with = sealed.data, sealed.method
    operation.items.using(alias).bulk_update(items.values(), ["sealed", "sealed_with"])
    plan = {
        "group": chord.group,
        "body": chord.body,
        "results": [results[index] for index in sorted(results)],
    }
    sealed = seal(json.dumps(plan).encode(), dlq_settings().encryption_keys)
    messages.append(_message(operation, 0, chord.group, sealed))
    OperationMessage.objects.using(alias).bulk_create(messages)


def _message(operation: Operation, position: int, task_id: str, sealed: Sealed) -> OperationMessage:
    return OperationMessage(
        operation_id=operation.pk,
        position=position,
        task_id=task_id,
        sealed=sealed.data,
        sealed_with=sealed.method,
    )


# Finding


def _find(letter: DeadLetter, *, over_limit: bool, app: Celery | None) -> _Found:
    try:
        seat = _seat(letter.record())
        new_chord(UUID(int=0), seat)
    except (NotRerun, CannotUnseal) as exc:
        return _Found(chord=FoundChord(problem=str(exc)))
    known = FoundChord(group=seat.group, body=str(seat.body.get("task") or ""))
    kept = _kept(seat.group, app)
    if isinstance(kept, str):
        return _Found(chord=replace(known, problem=kept))
    records: dict[UUID, LetterRecord] = {}
    try:
        letters = _letters_by_index(letter, seat.group, records)
    except (NotRerun, CannotUnseal) as exc:
        return _Found(chord=replace(known, problem=str(exc)))
    members = tuple(
        _member(index, letters.get(index, []), kept, over_limit=over_limit) for index in range(kept.size or 0)
    )
    found = replace(known, size=kept.size, members=members)
    missing = [each for each in members if each.standing is Standing.MISSING]
    if missing:
        reasons = "; ".join(dict.fromkeys(each.why for each in missing))
        found = replace(found, problem=f"{found.summary}: {reasons}")
    elif not found.number(Standing.LETTER):
        found = replace(found, problem="none of its members is an open dead letter")
    return _Found(
        chord=found,
        seat=seat,
        succeeded=[
            (each.index, kept.succeeded[each.index])
            for each in members
            if each.standing is Standing.SUCCEEDED
        ],
        letters=[(each.letter, records[each.letter]) for each in members if each.letter is not None],
    )


def _kept(group: str, app: Celery | None) -> KeptChord | str:
    """What the workers kept; or why that is nothing."""
    store = chord_members_of(app)
    if store is None:
        return "no worker keeps the members of chords that succeed"
    kept = store.kept(group, most=MOST_MEMBERS)
    if kept is None:
        return "the store where workers keep members of chords does not answer; try again later"
    if kept.size is None:
        return (
            "how many members the chord has is not known any more, or not yet: the messages of those that "
            'succeeded are kept for HARDENING["KEEP_CHORD_MEMBERS_SECONDS"], with Redis or a database as the '
            "result backend"
        )
    if kept.size > MOST_MEMBERS:
        return f"the chord has {kept.size} members; at most {MOST_MEMBERS} can be run again from here"
    return kept


def _letters_by_index(
    letter: DeadLetter, group: str, records: dict[UUID, LetterRecord]
) -> dict[int, list[DeadLetter]]:
    """Letters of this chord, newest first. By the time of their failure, which has an index."""
    near = DeadLetter.objects.using(database_alias()).filter(
        failed_at__gte=letter.failed_at - _LETTERS_APART,
        failed_at__lte=letter.failed_at + _LETTERS_APART,
        canvas__group=group,
    )
    found: dict[int, list[DeadLetter]] = {}
    for each in near.order_by("-failed_at", "-pk")[: 4 * MOST_MEMBERS]:
        record = each.record()
        seat = seat_of(record)
        if seat is not None and seat.group == group:  # The body has the group's id as well.
            records[each.pk] = record
            found.setdefault(seat.index, []).append(each)
    return found


def _member(index: int, letters: Sequence[DeadLetter], kept: KeptChord, *, over_limit: bool) -> FoundMember:
    """One that failed after it had succeeded, as when its result could not be stored, is its letter."""
    newest = next(iter(letters), None)
    if newest is not None and newest.state == State.OPEN:
        too_often = newest.replay_number >= dlq_settings().replay_limit and not over_limit
        return FoundMember(
            index=index,
            standing=Standing.MISSING if too_often else Standing.LETTER,
            task_name=newest.task_name,
            task_id=newest.task_id,
            letter=None if too_often else newest.pk,
            why=f"letter {newest.pk} was replayed too often" if too_often else "",
        )
    if index in kept.succeeded:
        record = kept.succeeded[index]
        return FoundMember(
            index=index, standing=Standing.SUCCEEDED, task_name=record.task_name, task_id=record.task_id
        )
    if newest is not None:
        return FoundMember(
            index=index,
            standing=Standing.MISSING,
            task_name=newest.task_name,
            task_id=newest.task_id,
            why=f"letter {newest.pk} is {newest.state}, and not known to have succeeded then",
        )
    why = (
        "it succeeded, and was too large to be kept"
        if index in kept.not_kept
        else ("a member runs or waits still, or its message is not kept any more")
    )
    return FoundMember(index=index, standing=Standing.MISSING, why=why)


def _seat(record: LetterRecord) -> Seat:
    seat = seat_of(record)
    if seat is None:
        raise NotRerun("this letter is no member of a chord")
    return seat
