"""An operation from its command to its last outcome, run by nobody but a worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.helpers.wait import wait_until

from .stage import Stage


def shown(stage: Stage, operation: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        stage.manage("dlq_operations", "show", operation, "--items", "--json").stdout
    )
    return found


def until(stage: Stage, operation: str, state: str) -> dict[str, Any]:
    """What is shown once it is in this state."""
    found: dict[str, Any] = {}

    def there() -> bool:
        found.clear()
        found.update(shown(stage, operation))
        return bool(found["state"] == state)

    wait_until(there, 60, lambda: f"{found}; {stage.logs()}")
    return found


@pytest.mark.parametrize(("broker", "pool"), [("redis", "prefork"), ("rabbitmq", "gevent")])
def test_an_operation_pauses_when_its_cause_returns_and_closes_when_every_outcome_is_known(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        stage.worker(pool=pool, TEST_DLQ=json.dumps({"OPERATE_EVERY_SECONDS": 0.3}))
        early, late = (stage.directory / name for name in ("early", "late"))
        for mended in (early, early, early, late, late, late):
            # One after the other: an operation sends the oldest first.
            stage.letter_of(stage.send("fail_until_mended", 1, str(mended)))
        early.touch()

        made = stage.manage(
            *(
                "dlq_replay",
                "--task",
                "fail_until_mended",
                "--pace",
                "ramp:1,2,2",
                "--why",
                "mended",
                "--json",
            )
        )
        operation = json.loads(made.stdout)["operation"]

        paused = until(stage, operation, "paused")
        assert paused["paused_because"] == "same_cause"
        assert (paused["succeeded"], paused["waiting"]) == (3, 1)
        assert paused["same_cause"] >= 1

        late.touch()
        stage.manage("dlq_operations", "resume", operation)

        closed = until(stage, operation, "closed")
        came_back = closed["came_back"]
        assert 1 <= came_back <= 2
        assert closed["succeeded"] == 6 - came_back
        assert closed["lost"] == closed["not_sent"] == 0
        assert [event["what"] for event in closed["events"]] == [
            *("made", "started", "paused", "resumed", "all sent", "closed")
        ]
        assert len(stage.effects("mended")) == 6 - came_back
        again = {item["new_letter_id"] for item in closed["items"] if item["state"] == "came_back"}
        assert again == {str(letter.pk) for letter in stage.letters(state="open")}
        wait_until(partial(stage.letters, state="replayed"), 5)


def test_a_replay_that_is_paced_and_waited_for_fails_the_command_unless_all_succeeded(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage:
        stage.worker()
        mended = stage.directory / "mended"
        stage.letter_of(stage.send("fail_until_mended", 1, str(mended)))

        failed = stage.manage("dlq_replay", "--all", "--pace", "rate:50", "--wait", "--json", check=False)
        mended.touch()
        done = stage.manage("dlq_replay", "--all", "--pace", "rate:50", "--wait", "--json")

        assert failed.returncode == 1
        assert json.loads(failed.stdout)["came_back"] == 1
        assert (json.loads(done.stdout)["succeeded"], json.loads(done.stdout)["state"]) == (1, "closed")
