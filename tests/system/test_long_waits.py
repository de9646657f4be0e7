"""A wait that is longer than a message may lie in a worker is sent in stages, and its attempt runs once."""

from __future__ import annotations

import json

VISIBLE_SECONDS = 6
WAIT_SECONDS = 14


def test_a_wait_beyond_the_visibility_timeout_of_redis_runs_its_attempt_once(new_stage) -> None:
    options = {"CELERY_BROKER_TRANSPORT_OPTIONS": {"visibility_timeout": VISIBLE_SECONDS}}
    with new_stage("redis") as stage:
        stage.worker(concurrency=2, TEST_CELERY=json.dumps(options))

        sent = stage.send("later", WAIT_SECONDS)
        stage.state_of(sent, "SUCCESS", timeout=60)
        stage.nothing_unacked()

        runs = stage.effects(f"later {sent.id}")
        assert len(runs) == 2, runs
