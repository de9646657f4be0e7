"""Members of chords that succeeded: kept until the body is on its way, and never in a task's way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from hardening import chord_members
from hardening.capture import chord_around
from hardening.chord_members import StoredMembers, ids_of_body, part_of
from hardening.core.chord_members import KeptChord
from hardening.stores.memory import MemoryStore
from tests.helpers.dlq_letters import letter, with_payload

STEPS = {"tasks": [{"task": "a", "options": {"task_id": "1"}}, {"task": "b", "options": {"task_id": "2"}}]}


class Broken(MemoryStore):
    def read(self, key: str) -> Any:
        raise RuntimeError("away")


def stored(store: MemoryStore | None = None) -> StoredMembers:
    return StoredMembers(Celery(set_as_current=False), store=store or MemoryStore(), seconds=60)


def test_members_are_kept_each_in_its_place_and_forgotten_together() -> None:
    members, one, again = stored(), letter(), letter()

    members.note_size("G", 3)
    members.note_size("G", 2)
    members.keep("G", 0, one)
    members.keep("G", 0, again)
    members.keep("G", 2, with_payload(one, body=b"x" * 70_000))
    members.keep("other", 0, one)

    assert members.kept("G", most=10) == KeptChord(size=3, succeeded={0: again}, not_kept=frozenset({2}))
    members.forget("G")
    assert members.kept("G", most=10) == KeptChord()
    members.note_size("other", 1)
    assert members.kept("other", most=10) == KeptChord(size=1, succeeded={0: one})


def test_a_store_that_does_not_answer_keeps_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    members = stored(Broken())

    members.keep("G", 0, letter())
    members.forget("G", 2)

    assert members.kept("G", most=10) is None
    assert caplog.text.count("are not kept for now") == 1


def test_only_members_of_chords_have_a_part_and_none_where_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    members = stored()

    def members_for(app: Any) -> StoredMembers:
        asked.append(app)
        return members

    monkeypatch.setattr(chord_members, "members_for", members_for)
    execution = SimpleNamespace(task=SimpleNamespace(name="t", app=None, backend=None), task_id="1")
    part = part_of(execution.task)

    assert part(execution, {"chord": None, "group": "G"}) is None
    chain = [{"task": "b", "options": {"group_id": "G", "chord": {"task": "body"}}}]
    assert part(execution, {"chain": [{"task": "b", "options": {"group_id": "G"}}]}) is None
    assert asked == []
    assert part(execution, {"chain": chain}) is not None
    assert part(execution, {"chord": {"task": "body"}, "group": "G", "group_index": 0}) is not None
    members.seconds = 0
    assert part(execution, {"chord": {"task": "body"}, "group": "G", "group_index": 0}) is None


def test_the_ids_of_a_body_are_its_own_and_those_of_its_steps() -> None:
    assert list(ids_of_body({"task": "a", "options": {"task_id": "1"}, "kwargs": STEPS})) == ["1"]
    chain = {"task": "celery.chain", "subtask_type": "chain", "kwargs": STEPS, "options": {"task_id": "3"}}
    assert list(ids_of_body(chain)) == ["3", "1", "2"]
    assert list(ids_of_body(None)) == []


def test_a_chain_in_a_chord_names_the_chord_of_its_last_task() -> None:
    last = {"task": "b", "options": {"group_id": "G", "chord": {"task": "body"}}}

    assert chord_around(None, {"chord": None, "chain": [last, {"task": "a"}]}) == ("G", "body")
    assert chord_around("H", {"chord": {"task": "own"}, "chain": [last]}) == ("H", "own")
    assert chord_around("H", {"chain": ["odd"]}) == ("H", None)
