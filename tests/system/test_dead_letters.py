"""What fails for good is kept before its message is acknowledged, on every broker and pool."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from celery import chord, group, signature

from dlq.models import DeadLetter
from tests.helpers.wait import wait_until

from .stage import ALIAS, COMBINATIONS, Stage
from .styles import STYLES


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def running(request: pytest.FixtureRequest, new_stage: Callable[..., Any]) -> Iterator[Stage]:
    """One worker of each kind, shared by the tests below; each uses task ids of its own."""
    broker, pool = request.param
    with new_stage(broker) as stage:
        stage.pool = pool
        stage.worker(pool=pool, concurrency=4)
        yield stage


def replay(letter: DeadLetter, stage: Stage) -> None:
    stage.manage("dlq_replay", str(letter.pk))


@pytest.mark.parametrize(("broker", "pool"), COMBINATIONS)
def test_every_style_of_task_is_acknowledged_late_and_leaves_a_letter(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(pool=pool, concurrency=len(STYLES))
        sent = {name: stage.send(name) for name in STYLES}
        wait_until(lambda: len(stage.effects("started")) == len(STYLES), 30, stage.logs)
        # All bodies run at this moment: whoever was acknowledged early is missing from this count.
        wait_until(lambda: stage.unacked() == len(STYLES), 15, lambda: f"{stage.unacked()} unacknowledged")

        stage.release()

        letters = {name: stage.letter_of(result) for name, result in sent.items()}
        assert {letter.reason for letter in letters.values()} == {"permanent"}
        for name, result in sent.items():
            stage.state_of(result, "FAILURE")
            assert letters[name].task_name == name
        stage.nothing_unacked()
        assert stage.effects("decorator of") == ["decorator of decorated"]
        assert stage.effects("call own_call") == [f"call own_call {sent['own_call'].id}"]
        assert stage.effects("on_failure with_base") == [f"on_failure with_base {sent['with_base'].id}"]
        assert not stage.effects("run of own_call_no_super")


def test_a_permanent_error_is_kept_at_its_first_attempt_in_spite_of_autoretry(running: Stage) -> None:
    result = running.send("fail_for_good")

    letter = running.letter_of(result)
    running.state_of(result, "FAILURE")
    assert letter.reason == "permanent"
    assert [a.number for a in running.attempts(letter)] == [1]
    assert running.effects(f"fail_for_good {result.id}") == [f"fail_for_good {result.id}"]


@pytest.mark.parametrize(
    ("task", "runs", "error"), [("exhaust", 3, "ValueError"), ("exhaust_by_hand", 2, "RuntimeError")]
)
def test_exhausted_retries_leave_one_letter_with_every_attempt(
    running: Stage, task: str, runs: int, error: str
) -> None:
    result = running.send(task)

    letter = running.letter_of(result)
    attempts = running.attempts(letter)
    assert letter.reason == "retries_exhausted"
    assert [a.number for a in attempts] == list(range(1, runs + 1))
    assert {a.error_class for a in attempts} == {error}
    assert all("Traceback" in a.traceback and a.worker and a.failed_at for a in attempts)
    running.state_of(result, "FAILURE")


@pytest.mark.parametrize(
    ("task", "arguments", "reason"),
    [
        ("bug", (1,), "permanent"),
        ("bug", (1, 2, 3), "permanent"),
        ("reject", (), "rejected"),
        ("unserialisable", (), "result_not_serialisable"),
        ("unpicklable", (), "error"),
        ("too_long", (), "time_limit"),
    ],
)
def test_every_other_end_of_a_failing_task_leaves_one_letter_with_its_reason(
    running: Stage, task: str, arguments: tuple[Any, ...], reason: str
) -> None:
    result = running.send(task, *arguments)

    letter = running.letter_of(result)
    assert letter.reason == reason
    running.state_of(result, "FAILURE")
    assert len(running.attempts(letter)) == 1


def test_an_errback_is_called_once_and_only_once(running: Stage) -> None:
    for task in ("fail_for_good", "too_long", "bug"):
        arguments = (1,) if task == "bug" else ()
        result = running.send(task, *arguments, link_error=signature("errback", app=running.sender))
        running.letter_of(result)
        running.state_of(result, "FAILURE")
        # The errback runs in the worker, a task of its own or inline: its line comes once.
        wait_until(partial(running.effects, f"errback {result.id}"), 20, running.logs)
        marker = running.send("succeed", f"after {task}")
        running.state_of(marker, "SUCCESS")
        assert running.effects(f"errback {result.id}") == [f"errback {result.id}"]


def test_a_chord_is_told_that_its_member_died(running: Stage) -> None:
    app = running.sender
    header = group(signature("succeed", args=(1,), app=app), signature("fail_for_good", app=app))
    body = running.sent(chord(header, signature("add", app=app), app=app).apply_async())

    running.state_of(body, "FAILURE", 40)
    letters = wait_until(lambda: running.letters(task_name="fail_for_good", root_id__isnull=False), 20)
    assert any((letter.canvas or {}).get("chord") == "add" for letter in letters)


def test_the_rest_of_a_chain_is_told_that_its_step_died(running: Stage) -> None:
    app = running.sender
    chain = signature("fail_for_good", app=app) | signature("succeed", app=app)
    last = chain.apply_async()

    running.state_of(running.sent(last), "FAILURE")
    letter = running.letter_of(running.sent(last.parent))
    assert letter.canvas["chain"] == ["succeed"]


def test_a_replay_brings_every_argument_back_as_it_was(running: Stage, tmp_path: Any) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    mended = tmp_path / "mended"
    payload = {
        "nested": {"list": [1, [2, {"deep": None}]], "flag": True},
        "uuid": uuid.UUID("12345678-1234-5678-1234-567812345678"),
        "when": datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
        "long": "x" * 5000,
        "text": "żółć 漢字 🎈",
        "amount": Decimal("12.50"),
    }
    result = running.send("echo_types", payload, str(mended))
    letter = running.letter_of(result)

    mended.touch()
    replay(letter, running)

    wait_until(lambda: running.effects("arrived"), 30, running.logs)
    assert f"arrived {payload!r}" in running.effects("arrived")
    letter.refresh_from_db(using=ALIAS)
    assert letter.state == "replayed"


def test_a_replay_that_fails_again_is_a_new_linked_letter_and_never_loops(running: Stage) -> None:
    result = running.send("fail_for_good", "work")
    first = running.letter_of(result)

    replay(first, running)

    second = wait_until(lambda: running.letters(replay_of=first.pk), 30, running.logs)[0]
    assert second.delivery_key == first.delivery_key == result.id
    assert (first.replay_number, second.replay_number) == (0, 1)
    assert second.state == "open"
    marker = running.send("succeed", "after the replay")
    running.state_of(marker, "SUCCESS")
    assert len(running.letters(delivery_key=result.id)) == 2


def test_a_secret_is_in_no_log_line_and_in_no_text_column(running: Stage) -> None:
    secret, token = f"hunter-{uuid.uuid4().hex}", f"tok-{uuid.uuid4().hex}"
    result = running.send("leak", "ann", secret, {"token": token})

    letter = running.letter_of(result)
    running.state_of(result, "FAILURE")
    attempts = running.attempts(letter)
    assert len(attempts) == 3
    texts = [str(value) for row in (letter, *attempts) for key, value in vars(row).items() if key != "sealed"]
    shown = "\n".join([*texts, running.logs(), running.manage("dlq_show", str(letter.pk)).stdout])
    assert "login of ann" in shown
    assert secret not in shown
    assert token not in shown


def test_a_task_whose_process_is_killed_runs_again(running: Stage) -> None:
    if (
        running.pool != "prefork"
    ):  # On gevent the task and its worker are one process: the next issue's matter.
        return
    result = running.send("die_once")

    running.state_of(result, "SUCCESS", 40)
    assert running.effects(f"die_once {result.id}") == [f"die_once {result.id}"] * 2
    assert running.letters(task_id=result.id) == []
