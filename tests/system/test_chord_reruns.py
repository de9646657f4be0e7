"""A chord that failed is run again as a whole: its dead letters, and its members that had succeeded."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from celery import chain, chord

from tests.helpers.wait import wait_until

from .stage import Stage


def kept(stage: Stage) -> list[str]:
    """The keys of what workers keep of chords."""
    with redis.Redis.from_url(stage.broker_url) as client:
        return [key.decode() for key in client.scan_iter("*chord:*") if b"state:" in key]


@pytest.mark.parametrize("counts", ["natively", "by polling"])
def test_a_chord_that_failed_runs_again_as_a_whole_and_its_body_once(
    new_stage: Callable[..., Any], counts: str
) -> None:
    with new_stage("redis") as stage:
        if counts == "by polling":
            stage.sender.close()
            stage.result_url = f"file://{stage.directory}"
            stage.__post_init__()
        stage.worker(TEST_DLQ=json.dumps({"OPERATE_EVERY_SECONDS": 600}))
        sender = stage.sender
        mended = stage.directory / "mended"
        fails = partial(sender.signature, "fail_until_mended")
        header = [
            sender.signature("succeed", args=(1,)),
            fails(args=(2, str(mended))),
            chain(fails(args=(3, str(mended))), sender.signature("succeed")),
        ]

        body = stage.sent(chord(header, app=sender)(fails(args=(str(mended),))))
        wait_until(lambda: len(stage.letters()) == 2, 60, stage.logs)
        letters = stage.letters()
        stage.state_of(body, "FAILURE")
        (old,) = {letter.canvas["group"] for letter in letters}
        wait_until(lambda: len(kept(stage)) == 2, 30, lambda: f"{kept(stage)} {stage.logs()}")

        mended.touch()
        told = stage.manage("dlq_replay", str(letters[1].pk), "--chord", "--wait", "--json")
        done = json.loads(told.stdout)

        assert (done["state"], done["succeeded"], done["total"]) == ("closed", 2, 2)
        wait_until(lambda: stage.effects("mended [1, 2, 3]"), 60, stage.logs)
        assert [letter.state for letter in stage.letters()] == ["replayed"] * 2
        assert sorted(stage.effects("mended")) == ["mended 2", "mended 3", "mended [1, 2, 3]"]
        wait_until(lambda: all(old in key for key in kept(stage)), 30, lambda: str(kept(stage)))
