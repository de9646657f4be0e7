"""Whatever comes to a worker and is no task ends as a letter, and the worker serves the next message."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import chain, chord, signature

from tests.helpers.wait import wait_until

from .odd_messages import ENVELOPES, GARBAGE, KINDS, Kind, body_of, publish, push
from .stage import CROSSED, STRAIGHT, Stage

INTAKING = ("-I", "tests.system.project.intaking")
DEAD_LETTER_QUEUE = "celery_hardening.dead_letters"
RULES = json.dumps({"INTAKE": {"MOST_BYTES": 2500}})


def good(stage: Stage, value: object) -> Any:
    return stage.send("intaking.served", value)


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT, ids=lambda value: value)
def test_every_kind_of_odd_message_is_kept_and_the_good_ones_among_them_are_served(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(pool=pool, concurrency=2, extra_args=INTAKING, TEST_HARDENING=RULES)
        ids: dict[str, str | None] = {}
        for number, (name, kind) in enumerate(KINDS.items()):
            ids[name] = publish(stage, kind)
            good(stage, number)
        envelopes = ENVELOPES if broker == "redis" else {}
        garbage = GARBAGE if broker == "redis" else {}
        for _, made in envelopes.values():
            push(stage, json.dumps(made()).encode())
        for item in garbage.values():
            push(stage, item)
        # A canvas around a message that is no task: all that waits for it ends.
        members = [signature("intaking.served", args=(each,), app=stage.sender) for each in (1, 2)]
        after = signature("intaking.served", args=("after",), immutable=True, app=stage.sender)
        unknown = signature("nobody.chords", app=stage.sender)
        joined = stage.sent(chord([*members, unknown])(signature("intaking.joined", app=stage.sender)))
        told = signature("intaking.told", app=stage.sender)
        tail = stage.sent(
            chain(
                signature("nobody.chains", link_error=told, app=stage.sender),
                after.clone(),
            ).apply_async()
        )
        late = chain(members[0].clone(), after.clone())
        late.tasks[0].set(expires=-5)
        late_tail = stage.sent(late.apply_async())
        last = good(stage, "last")

        stage.state_of(last, "SUCCESS", 60)
        expected = len(KINDS) + len(envelopes) + len(garbage) + 3
        wait_until(
            lambda: sum(letter.captures for letter in stage.letters()) >= expected,
            60,
            lambda: f"{len(stage.letters())} of {expected}; {stage.logs()}",
        )
        letters = stage.letters()
        bodies = {letter.pk: letter.record().payload.body for letter in letters}
        for name, kind in KINDS.items():
            found = [
                each
                for each in letters
                if (each.reason, bodies[each.pk]) == (kind.reason, body_of(kind))
                and kind.says in each.error_message
                and ids[name] in (None, each.task_id)
            ]
            assert found, (name, [(each.reason, each.error_message) for each in letters])
            if ids[name] is not None:
                assert (name, stage.sender.AsyncResult(ids[name]).state) == (name, kind.state)
        for name, (reason, _) in envelopes.items():
            same = [each for each in envelopes.values() if each[0] == reason]
            assert sum(each.captures for each in letters if each.reason == reason) >= len(same), name
        assert set(garbage.values()) <= {bodies[each.pk] for each in letters if each.reason == "garbage"}
        stage.state_of(joined, "FAILURE")
        stage.state_of(tail, "FAILURE")
        stage.state_of(late_tail, "REVOKED")
        wait_until(lambda: stage.effects("told"), 30, stage.logs)
        assert len(set(stage.effects("served"))) >= len(KINDS)
        stage.nothing_unacked()
        [worker] = stage.workers
        assert worker.status == "running"
        assert not stage.said("kept without its details"), stage.logs()
        assert not stage.said("could not be told"), stage.logs()


UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_message_whose_letter_no_store_takes_waits_for_one_and_the_next_is_served(
    new_stage: Callable[..., Any], pool: str
) -> None:
    with new_stage("redis") as stage, redis.Redis.from_url(stage.broker_url) as client:
        stage.worker(pool=pool, concurrency=4, extra_args=INTAKING, TEST_DATABASE_URL=UNREACHABLE)
        # A key of another type in the queue's place: the broker refuses the letter, and only the letter.
        client.set(DEAD_LETTER_QUEUE, "in the way")
        unknown = publish(stage, KINDS["unregistered"])
        late = publish(stage, KINDS["expired"])
        push(stage, GARBAGE["bytes"])
        wait_until(lambda: stage.said("stays unacknowledged") >= 3, 60, stage.logs)
        assert stage.unacked() == 2, "one is in the list of garbage"
        assert stage.sender.AsyncResult(unknown).state == "PENDING"
        stage.state_of(good(stage, 1), "SUCCESS", 60)

        client.delete(DEAD_LETTER_QUEUE)

        wait_until(lambda: client.llen(DEAD_LETTER_QUEUE) == 3, 60, stage.logs)
        stage.nothing_unacked()
        wait_until(lambda: stage.sender.AsyncResult(unknown).state == "FAILURE", 20, stage.logs)
        wait_until(lambda: stage.sender.AsyncResult(late).state == "REVOKED", 20, stage.logs)
        wait_until(lambda: not client.llen("hardening.garbage"), 20, stage.logs)


@pytest.mark.parametrize(("broker", "pool"), CROSSED, ids=lambda value: value)
def test_an_unknown_task_is_offered_again_and_kept_and_a_repaired_message_is_run(
    new_stage: Callable[..., Any], broker: str, pool: str, tmp_path: Path
) -> None:
    rules = json.dumps({"INTAKE": {"OFFERS": 2, "OFFER_AFTER": "0.5 s"}, "DELAYED": {"HORIZON": "0.4 s"}})
    with new_stage(broker) as stage:
        old = stage.worker(pool=pool, concurrency=2, extra_args=INTAKING, TEST_HARDENING=rules)
        brought = stage.send("intaking.brought", 1)
        # Parked until its time, it is too late then.
        now = datetime.now(UTC)
        times = {"eta": now + timedelta(seconds=3), "expires": now + timedelta(seconds=2)}
        publish(stage, Kind("expired", headers={name: at.isoformat() for name, at in times.items()}))
        publish(stage, KINDS["no JSON"])
        if broker == "redis":
            push(stage, b'{"body": "cut o')

        kept = stage.letter_of(brought, 60)
        assert kept.reason == "unregistered"
        assert (stage.said("(1 of 2)"), stage.said("(2 of 2)")) == (1, 1), stage.logs()
        stage.state_of(brought, "FAILURE")

        # What cannot be decoded is exported, repaired and sent.
        [broken] = wait_until(lambda: stage.letters(reason="undecodable"), 30, stage.logs)
        exported = tmp_path / "body"
        stage.manage("dlq_export", str(broken.pk), "--body", str(exported))
        assert exported.read_bytes() == KINDS["no JSON"].raw
        exported.write_bytes(b'[["repaired"], {}, {}]')
        stage.manage("dlq_replay", str(broken.pk), "--body", str(exported))
        wait_until(lambda: stage.effects("served repaired"), 30, stage.logs)
        if broker == "redis":
            [garbage] = wait_until(lambda: stage.letters(reason="garbage"), 30, stage.logs)
            message = tmp_path / "message"
            headers = {"task": "intaking.served", "lang": "py"}
            message.write_text(json.dumps({"headers": headers, "content_type": "application/json"}))
            exported.write_bytes(b'[["rescued"], {}, {}]')
            stage.manage("dlq_replay", str(garbage.pk), "--body", str(exported), "--message", str(message))
            wait_until(lambda: stage.effects("served rescued"), 30, stage.logs)

        # The deploy: what is offered meanwhile is run by it, and what was kept is replayed.
        second = stage.send("intaking.brought", 2)
        wait_until(lambda: stage.said("(1 of 2)") == 2, 30, stage.logs)
        old.kill("SIGKILL")
        stage.worker(pool=pool, concurrency=2, extra_args=INTAKING, TEST_HARDENING=rules, TEST_DEPLOYED="yes")
        stage.manage("dlq_replay", str(kept.pk))

        stage.state_of(second, "SUCCESS", 60)
        wait_until(lambda: stage.effects("brought 1"), 30, stage.logs)
        [row] = stage.letters(pk=kept.pk)
        stage.state_of(stage.sent(stage.sender.AsyncResult(row.replay_task_id)), "SUCCESS")
        reasons = ["expired", "undecodable", "unregistered", *(["garbage"] if broker == "redis" else [])]
        assert sorted(letter.reason for letter in stage.letters()) == sorted(reasons)
        assert stage.said("is parked until") == 1
