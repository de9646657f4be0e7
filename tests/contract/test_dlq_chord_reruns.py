"""The re-run of a chord: made of all members or refused, and the same messages whoever sends them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from dlq.errors import NotRerun
from dlq.models import DeadLetter, Operation, OperationMessage
from dlq.operations import chord_rerun, chord_sending
from dlq.operations.chord_rerun import Standing, find_chord, make_chord_operation
from dlq.operations.control import cancel, start
from dlq.operations.messages import outgoing
from dlq.operations.outcomes import settle
from dlq.operations.states import Kind
from hardening.core.chord_members import KeptChord
from hardening.core.letter import Canvas
from hardening.core.letter import DeadLetter as LetterRecord
from tests.helpers.dlq_databases import KINDS, letters_in
from tests.helpers.dlq_letters import FAILED_AT, letter
from tests.helpers.operating import ListBroker, kept, run, states, verdicts

GROUP = "2f1c7e0a-8d5b-4c39-a3d1-3f3f61a0a5c1"
BODY = {
    "task": "shop.tasks.total",
    "args": ["of the day"],
    "kwargs": {},
    "options": {
        "task_id": "body-1",
        "group_id": GROUP,
        "link": [{"task": "n", "options": {"task_id": "n-1"}}],
    },
    "subtask_type": None,
    "immutable": False,
}


@pytest.fixture(autouse=True)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    kind = getattr(request, "param", "sqlite")
    with django_db_blocker.unblock(), letters_in(kind, request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


def member(index: int, *, chain: bool = False, body: dict[str, Any] | None = None) -> LetterRecord:
    """One of the chord: itself, or by the last task of its chain."""
    inside: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    headers: dict[str, Any] = {}
    if chain:
        options = {"task_id": f"last-{index}", "group_id": GROUP, "group_index": index, "chord": body or BODY}
        inside["chain"] = [{"task": "shop.tasks.last", "args": [], "kwargs": {}, "options": options}]
    else:
        inside["chord"] = body or BODY
        headers = {"group": GROUP, "group_index": index}
    return letter(
        body=json.dumps([[index], {}, inside]).encode(),
        headers=headers,
        canvas=Canvas(group=GROUP, chord="shop.tasks.total"),
        failed_at=FAILED_AT + timedelta(seconds=index),
    )


class Workers:
    """What workers keep."""

    def __init__(self) -> None:
        self.chord: KeptChord | None = KeptChord(size=3, succeeded={1: member(1)})

    def kept(self, group: str, *, most: int) -> KeptChord | None:
        assert group == GROUP
        return self.chord


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    found = Workers()
    monkeypatch.setattr(chord_rerun, "chord_members_of", lambda app=None: found)
    return found


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The chords that the result backend was told of."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(chord_sending, "_make_known", lambda _app, plan: told.append(plan))
    return told


def planned() -> Operation:
    rows = [kept(member(0)), kept(member(2, chain=True))]
    operation = make_chord_operation(rows[0], by="ops")
    assert start(operation.pk, by="ops")
    return operation


def embedded(broker: ListBroker, task_id: str) -> Any:
    (found,) = {message.body for message in broker.taken if message.task_id == task_id}
    return json.loads(found)[2]


@pytest.mark.parametrize("alias", KINDS, indirect=True)
def test_all_members_are_sent_in_a_new_chord_the_succeeded_first(known: list[dict[str, Any]]) -> None:
    broker, operation = ListBroker(), planned()

    run(operation, broker)

    (plan,) = known
    first, *letters = broker.ids
    assert states(operation) == ["sent", "sent"]
    assert letters == list(operation.items.order_by("position").values_list("task_id", flat=True))
    assert len(set(broker.ids)) == 3
    last = embedded(broker, letters[1])["chain"][0]["options"]
    assert plan["results"] == [letters[0], first, last["task_id"]]
    assert last["task_id"] != "last-2"
    bodies = [embedded(broker, first)["chord"], embedded(broker, letters[0])["chord"], last["chord"]]
    assert bodies == [plan["body"]] * 3
    assert plan["body"]["args"] == ["of the day"]
    options = plan["body"]["options"]
    assert options["group_id"] == last["group_id"] == plan["group"] != GROUP
    assert options["headers"] == {"hardening_key": options["task_id"], "hardening_replay": 0}
    assert not {"body-1", "n-1"} & {options["task_id"], options["link"][0]["options"]["task_id"]}
    groups = {message.headers["group"] for message in broker.taken if message.task_id != letters[1]}
    assert groups == {plan["group"]}
    assert not OperationMessage.objects.exists()


def test_a_runner_of_small_chunks_claims_the_chord_as_a_whole(known: list[dict[str, Any]]) -> None:
    broker, operation = ListBroker(), planned()

    run(operation, broker, chunk=1)

    assert (len(known), len(broker.taken), states(operation)) == (1, 3, ["sent", "sent"])


@pytest.mark.parametrize("sends", [1, 2], ids=["before the members", "before the letters"])
def test_a_runner_that_dies_leaves_one_that_sends_the_same_chord(
    known: list[dict[str, Any]], sends: int
) -> None:
    operation = planned()
    dead = ListBroker()

    def die(_batch: Any) -> None:
        nonlocal sends
        sends -= 1
        if not sends:
            raise KeyboardInterrupt

    dead.at_send = die
    with pytest.raises(KeyboardInterrupt):
        run(operation, dead)
    assert states(operation) == ["staged", "staged"]
    before = list(dead.ids)
    after = ListBroker()

    run(operation, after)

    assert len(known) == 1
    assert len({*before, *after.ids}) == len(before) + len(after.ids) == 3
    assert states(operation) == ["sent", "sent"]


def test_a_result_backend_or_broker_that_is_away_gives_all_letters_back(
    known: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, broker = planned(), ListBroker()
    told = chord_sending._make_known

    def away(_app: Any, _plan: Any) -> None:
        raise ConnectionError("away")

    monkeypatch.setattr(chord_sending, "_make_known", away)
    run(operation, broker)
    assert (states(operation), broker.taken) == (["waiting", "waiting"], [])
    monkeypatch.setattr(chord_sending, "_make_known", told)
    broker.down = "away"
    run(operation, broker)
    assert states(operation) == ["waiting", "waiting"]
    broker.down = ""

    run(operation, broker)

    assert (len(known), len(broker.taken)) == (1, 3)


def test_one_letter_that_was_claimed_by_others_or_a_cancel_keeps_all_back(known: list[Any]) -> None:
    operation, broker = planned(), ListBroker()
    DeadLetter.objects.filter(pk=operation.items.latest("position").letter_id).discard(
        by="ops", reason="", token=uuid4(), now=operation.created_at
    )

    run(operation, broker)

    assert (known, broker.taken) == ([], [])
    assert sorted(verdicts(operation).values()) == ["not_open", "unsendable"]
    assert DeadLetter.objects.open().count() == 1
    settle(operation_id=operation.pk, seconds=5)
    assert not OperationMessage.objects.exists()
    other = make_chord_operation_of_open()
    cancel(other.pk, by="ops")
    run(other, broker)
    assert broker.taken == []
    assert not OperationMessage.objects.exists()


def make_chord_operation_of_open() -> Operation:
    DeadLetter.objects.discarded().restore(token=uuid4())
    operation = make_chord_operation(DeadLetter.objects.open()[0], by="ops")
    assert start(operation.pk, by="ops")
    return operation


def test_a_copy_of_a_chain_in_a_chord_is_in_no_chord_at_its_end() -> None:
    message = outgoing(
        member(0, chain=True),
        kind=Kind.COPY,
        letter_id=uuid4(),
        task_id="copy",
        queue=None,
        is_fanout=lambda _queue: False,
    )

    options = json.loads(message.body)[2]["chain"][0]["options"]
    assert (options["chord"], options["group_id"]) == (None, None)


def nested(workers: Workers) -> LetterRecord:
    return member(0, body={**BODY, "options": {"task_id": "b", "chord": BODY}})


def of(size: int | None, **fields: Any) -> Callable[[Workers], None]:
    def change(workers: Workers) -> None:
        workers.chord = KeptChord(size=size, **fields)

    return change


def silent(workers: Workers) -> None:
    workers.chord = None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (of(4, succeeded={1: member(1)}), "2 are dead letters, 1 are missing: a member runs or waits still"),
        (of(3, not_kept=frozenset({1})), "was too large"),
        (of(None), "is not known any more"),
        (of(501), "at most 500"),
        (silent, "does not answer"),
    ],
    ids=["missing", "too large", "unknown size", "too many", "silent"],
)
def test_a_chord_is_refused_unless_every_member_is_there(
    workers: Workers, now: Callable[[Workers], None], why: str
) -> None:
    row = kept(member(0))
    kept(member(2, chain=True))
    now(workers)

    with pytest.raises(NotRerun, match=why):
        make_chord_operation(row, by="ops")

    assert not Operation.objects.exists()


def test_a_letter_that_is_replayed_or_of_a_chord_within_another_is_refused_and_an_open_one_is_sent(
    workers: Workers,
) -> None:
    assert "itself a member" in find_chord(kept(nested(workers))).problem
    DeadLetter.objects.all().delete()
    rows = [kept(member(0)), kept(member(2))]
    kept(member(1))
    standings = [each.standing for each in find_chord(rows[0]).members]
    assert standings == [Standing.LETTER] * 3
    rows[1].state = "replayed"
    rows[1].closed_at = rows[1].stored_at
    rows[1].save()
    assert "is replayed, and not known to have succeeded" in find_chord(rows[0]).problem
    workers.chord = KeptChord(size=3, succeeded={2: member(2)})
    assert find_chord(rows[0]).problem == ""
    DeadLetter.objects.open().discard(by="ops", reason="", token=uuid4(), now=rows[1].stored_at)
    workers.chord = KeptChord(size=3, succeeded={index: member(index) for index in range(3)})
    assert "none of its members is an open dead letter" in find_chord(rows[0]).problem
