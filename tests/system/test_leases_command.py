"""`hardening_leases`: an operator sees who holds what, and what no lease covers comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import redis

from .test_leases import ended, hardening, runs, started, worker


def test_it_shows_who_holds_what_and_brings_back_what_no_lease_covers(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage, redis.Redis.from_url(stage.broker_url) as client:
        first = worker(stage, concurrency=1, name="first")
        sent = stage.send("until_released")
        started(stage, sent)
        [held] = look(stage)["held"]
        assert (held["task"], held["id"], held["queue"]) == ("until_released", sent.id, "celery")
        assert held["holder"].startswith("first@")
        assert 0 < held["seconds"] <= 3

        # As after an eviction: the index is gone, and with it whoever could renew it.
        first.kill("SIGKILL")
        client.delete("unacked_index.leased")
        assert look(stage)["orphans"] == [held["tag"]]
        shown = stage.manage("hardening_leases").stdout
        assert "1 without a lease" in shown
        assert "--adopt gives them a lease" in shown
        assert look(stage)["orphans"] == [held["tag"]], "to look changes nothing"
        assert look(stage, "--adopt")["orphans"] == [held["tag"]]

        worker(stage, name="second")
        started(stage, sent, 2)
        stage.release()
        ended(stage, sent)
        stage.nothing_unacked()
        assert runs(stage, sent) == (2, 1)
        assert look(stage) == {"held": [], "orphans": [], "recovered": []}


def test_what_the_last_worker_held_can_be_given_back_when_none_runs_any_more(
    new_stage: Callable[..., Any],
) -> None:
    with new_stage("redis") as stage, redis.Redis.from_url(stage.broker_url) as client:
        first = worker(stage, concurrency=1)
        sent = stage.send("until_released")
        started(stage, sent)
        [held] = look(stage)["held"]
        first.kill("SIGKILL")

        assert look(stage, "--recover")["recovered"] == [held["tag"]]
        assert client.llen("celery") == 1


def test_a_worker_finds_what_no_lease_covers_by_itself(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage, redis.Redis.from_url(stage.broker_url) as client:
        first = worker(stage, concurrency=1)
        sent = stage.send("until_released")
        started(stage, sent)
        first.kill("SIGKILL")
        client.delete("unacked_index.leased")

        worker(stage, name="second")
        started(stage, sent, 2, timeout=90)
        assert stage.said("had no lease and would never have come back") == 1
        stage.release()
        ended(stage, sent)


def look(stage: Any, *arguments: str) -> dict[str, Any]:
    answer = stage.manage("hardening_leases", "--json", *arguments, TEST_HARDENING=hardening())
    found: dict[str, Any] = json.loads(answer.stdout)
    return found
