"""Members of chords that succeeded: their messages are kept until the body of their chord is on its way.

    chord:{group}           how many members the chord has
    chord:{group}:{index}   the message of a member that succeeded

The argument. A chord that failed can be run again only as a whole, and the messages of its members that
succeeded are acknowledged. So each is kept here when its body has returned, before Celery stores its result
and counts its part, hence before it is acknowledged: whoever is counted as a success was kept, and who
publishes the body of the chord comes after all who were kept, and deletes them. A process that dies in
between leaves a message that comes back and is kept again, under the same key. What nobody deletes (the chord
failed, or the worker's parent published its body) goes when HARDENING["KEEP_CHORD_MEMBERS_SECONDS"] are over.

The size stands in no message. With Redis as the result backend Celery writes it there before it publishes the
last member, which reads it before its body runs, as the first task of a chain does that is the member;
elsewhere `celery.chord_unlock` has the list of all members. Other backends tell nobody: such a chord is kept,
and cannot be re-run from its letters.

Which way it fails: nothing is kept, said at most once a minute, and the member goes on. A store that does not
answer is left alone for some seconds. Who re-runs the chord is told then that a member is missing.

Only members of chords pay for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from celery import Celery

from .capture import chord_around, keeper_for
from .conf import load_settings
from .core.chord_members import KeptChord
from .core.letter import Attempt, DeadLetter, dump_letter, load_letter
from .core.reasons import Reason
from .standing import chord_size
from .store import StateStore, encoded, update
from .stores.patient import PatientStore

__all__ = ["Part", "StoredMembers", "ids_of_body", "members_for", "part_of"]

logger = logging.getLogger("hardening")

_CHORD_UNLOCK = "celery.chord_unlock"

_SAYS = "members of chords that succeed are not kept for now: their chords cannot be re-run as a whole"
_DELETING_SECONDS = 2.0
"""Who publishes the body of a large chord deletes for so long at most; the rest goes by its time."""


class StoredMembers(PatientStore):
    """Those that the workers of an app keep. Implements `hardening.core.chord_members.ChordMembers`."""

    def __init__(
        self,
        app: Celery,
        *,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        seconds: float | None = None,
    ) -> None:
        super().__init__(app, _SAYS, store=store, clock=clock)
        self.seconds = load_settings()[0].keep_chord_members_seconds if seconds is None else seconds
        """How long they are kept; 0: none is."""

    def note_size(self, group: str, size: int) -> None:
        """How many members the chord has. Whoever is first says it for all."""
        self._change(_key(group), lambda found: found or {"size": size})

    def keep(self, group: str, index: int, letter: DeadLetter) -> None:
        """Keep a member, in the place of what was kept of it before."""
        whole: dict[str, Any] = {"letter": dump_letter(letter).decode()}
        try:
            encoded(whole)
        except ValueError:
            whole = {"too_large": len(letter.payload.body)}
        self._change(_key(group, index), lambda _: whole)

    def forget(self, group: str, size: int | None = None) -> None:
        """Delete what is kept of a chord."""

        def delete(store: StateStore) -> None:
            known = size or _size_in(store.read(_key(group)).value) or 0
            until = self._clock() + _DELETING_SECONDS
            for key in (_key(group), *(_key(group, index) for index in range(known))):
                found = store.read(key)
                if found.value is not None:
                    store.swap(key, version=found.version, value=None, ttl_seconds=1)
                if self._clock() >= until:
                    return

        self.ask(delete, None)

    def kept(self, group: str, *, most: int) -> KeptChord | None:
        """What is kept of a chord, one question to the store for each member."""

        def read(store: StateStore) -> KeptChord:
            size = _size_in(store.read(_key(group)).value)
            succeeded: dict[int, DeadLetter] = {}
            not_kept: set[int] = set()
            for index in range(min(size or 0, most)):
                found = store.read(_key(group, index)).value
                letter = _letter_in(found)
                if letter is not None:
                    succeeded[index] = letter
                elif found is not None:
                    not_kept.add(index)
            return KeptChord(size=size, succeeded=succeeded, not_kept=frozenset(not_kept))

        return self.ask(read, None)

    def _change(self, key: str, change: Callable[[dict[str, Any] | None], dict[str, Any]]) -> None:
        self.ask(
            lambda store: update(
                store, key, lambda found, _: (change(found), None), ttl_seconds=self.seconds
            ),
            None,
        )


class Part(Protocol):
    """An execution that chords are told of. None of these ever raises."""

    def succeeded(self) -> None:
        """Its body returned."""
        ...

    def ended(self) -> None:
        """Celery's tracer is through with it."""
        ...


def part_of(task: Any) -> Callable[[Any, Mapping[str, Any]], Part | None]:
    """What makes the part of an execution; of most it is none."""
    return _Unlocking if task.name == _CHORD_UNLOCK else _member


def _member(execution: Any, request: Mapping[str, Any]) -> Part | None:
    if not (request.get("chord") or request.get("chain")):
        return None
    try:
        group, chord = chord_around(request.get("group"), request)
        if not (group and chord):
            return None
        members = members_for(execution.task.app)
        return _Member(execution, members, group, request) if members.seconds > 0 else None
    # Whatever is odd about a message, or a result backend: it runs.
    except Exception as exc:
        _say(execution, exc)
        return None


class _Member:
    """A member of a chord, or a task whose chain ends in one: that only asks for the size of the chord."""

    __slots__ = ("_body", "_execution", "_group", "_index", "_members", "_size")

    def __init__(
        self, execution: Any, members: StoredMembers, group: str, request: Mapping[str, Any]
    ) -> None:
        self._execution = execution
        self._members = members
        self._group = group
        self._body = request.get("chord")
        self._index = request.get("group_index") if self._body else None
        self._size: int | None = None
        self._ask_size()

    def succeeded(self) -> None:
        """Its part is not counted yet: keep it."""
        try:
            if self._size is None:
                self._ask_size()
            if isinstance(self._index, int):
                self._members.keep(self._group, self._index, _as_letter(self._execution))
        # The work is done, whoever cannot be told.
        except Exception as exc:
            _say(self._execution, exc)

    def ended(self) -> None:
        """Its part is counted, and the body perhaps published."""
        try:
            if _has_published(self._execution, self._body):
                self._members.forget(self._group, self._size)
        except Exception as exc:
            _say(self._execution, exc)

    def _ask_size(self) -> None:
        self._size = chord_size(self._execution.task.backend, self._group)
        if self._size:
            self._members.note_size(self._group, self._size)


class _Unlocking:
    """Celery's task that polls for the parts of a chord, and publishes its body or fails it."""

    __slots__ = ("_execution",)

    def __init__(self, execution: Any, _request: Mapping[str, Any]) -> None:
        self._execution = execution

    def succeeded(self) -> None:
        """It does not poll again."""

    def ended(self) -> None:
        """All members have ended, if it does not poll again."""
        execution = self._execution
        try:
            members = members_for(execution.task.app)
            if members.seconds > 0 and execution.finished:
                self._tell(members, execution.request.args, execution.request.kwargs)
        # It has polled to its end, whoever cannot be told.
        except Exception as exc:
            _say(execution, exc)

    def _tell(self, members: StoredMembers, args: Any, kwargs: Any) -> None:
        group, body, parts = str(args[0]), args[1], kwargs.get("result") or ()
        if _has_published(self._execution, body):
            members.forget(group, len(parts))
        # A part that is a group of its own counts as many as it has, and nobody says how many.
        elif not any(part[1] for part in parts):
            members.note_size(group, len(parts))


def ids_of_body(body: Any) -> Iterator[str]:
    """The ids of the tasks that a body consists of: one, or those of its chain."""
    if not isinstance(body, Mapping):
        return
    task_id = (body.get("options") or {}).get("task_id")
    if task_id:
        yield str(task_id)
    for step in (body.get("kwargs") or {}).get("tasks") or () if body.get("subtask_type") else ():
        yield from ids_of_body(step)


def _has_published(execution: Any, body: Any) -> bool:
    # Celery notes what a task published in its children.
    children = getattr(execution.request, "children", None) or ()
    wanted = set(ids_of_body(body))
    return any(str(getattr(child, "id", "")) in wanted for child in children)


def _as_letter(execution: Any) -> DeadLetter:
    """Its message in the form of a letter: complete enough to be sent again."""
    attempt = Attempt(number=1, error_class="", message="", failed_at=datetime.now(UTC))
    return keeper_for(execution.task.app).letter(
        task=execution.task,
        task_id=execution.task_id,
        delivery=execution.delivery,
        embedded=execution.request.__dict__,
        reason=Reason.ERROR,
        attempts=[attempt],
        worker=str(execution.request.hostname or ""),
    )


def _size_in(found: Mapping[str, Any] | None) -> int | None:
    size = (found or {}).get("size")
    return size if isinstance(size, int) and size > 0 else None


def _letter_in(found: Mapping[str, Any] | None) -> DeadLetter | None:
    text = (found or {}).get("letter")
    try:
        return load_letter(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _key(group: str, index: int | None = None) -> str:
    return f"chord:{group}" if index is None else f"chord:{group}:{index}"


def _say(execution: Any, exc: Exception) -> None:
    logger.error(
        "the chord of task %s[%s] cannot be re-run as a whole if it fails: this member is not kept",
        execution.task.name,
        execution.task_id,
        exc_info=exc,
        extra={"task_id": execution.task_id, "task_name": execution.task.name},
    )


_all: WeakKeyDictionary[Celery, StoredMembers] = WeakKeyDictionary()


def members_for(app: Celery) -> StoredMembers:
    """Those of an app; one for each app and process."""
    found = _all.get(app)
    if found is None:
        found = _all[app] = StoredMembers(app)
    return found
