"""A result backend that takes connections and never answers costs the worker's main loop no message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import signature

from hardening.testing.tcp_proxy import tcp_proxy
from tests.helpers.wait import wait_until

from .odd_messages import KINDS, publish
from .stage import Sent, Stage

EXTRA = ("-I", "tests.system.project.poisonous,tests.system.project.intaking")
AT_ONCE = 2.0
"""Seconds. Without the thread that tells it is half a minute, and more."""


@contextmanager
def silent_results(stage: Stage) -> Iterator[Any]:
    """A way to the results of the stage that swallows all that is sent to it."""
    parts = urlsplit(stage.result_url)
    with tcp_proxy(str(parts.hostname), int(parts.port or 6379)) as way:
        way.swallows = True
        yield way, parts._replace(netloc=f"127.0.0.1:{way.port}").geturl()


def kill(stage: Stage) -> Sent:
    told = signature("intaking.told", app=stage.sender, options={"ignore_result": True})
    return stage.send("die_at_once", link_error=told)


def unknown(stage: Stage) -> Sent:
    return Sent(str(publish(stage, KINDS["no JSON"])), stage.sender)


@pytest.mark.parametrize(
    ("pool", "fails"),
    [("prefork", kill), ("prefork", unknown), ("gevent", unknown)],
    ids=["prefork-poison", "prefork-no_task", "gevent-no_task"],
)
def test_a_silent_result_backend_keeps_no_message_waiting_and_is_told_when_it_answers(
    new_stage: Callable[..., Any], pool: str, fails: Callable[[Stage], Sent]
) -> None:
    with new_stage("redis") as stage, silent_results(stage) as (way, url):
        stage.worker(pool=pool, concurrency=1, extra_args=EXTRA, CELERY_RESULT_BACKEND=url)
        warm = stage.send("harmless", ignore_result=True)
        wait_until(lambda: stage.effects(f"start {warm.id} "), 20, stage.logs)
        failed = []
        for _ in range(3):
            failed.append(fails(stage))
            stage.letter_of(failed[-1])
            good = stage.send("harmless", ignore_result=True)
            begun = time.monotonic()
            wait_until(partial(stage.effects, f"start {good.id} "), 90, stage.logs)
            assert time.monotonic() - begun < AT_ONCE, stage.logs()
        stage.nothing_unacked(AT_ONCE)
        assert [each.state for each in failed] == ["PENDING"] * 3

        way.swallows = False

        for each in failed:
            stage.state_of(each, "FAILURE", 60)
        if fails is kill:
            wait_until(lambda: len(stage.effects("told")) == 3, 20, stage.logs)
        assert {each.captures for each in stage.letters()} == {1}


def test_what_is_owed_when_the_worker_ends_is_named(new_stage: Callable[..., Any]) -> None:
    with new_stage("redis") as stage, silent_results(stage) as (_, url):
        worker = stage.worker(concurrency=1, extra_args=EXTRA, CELERY_RESULT_BACKEND=url)
        failed = unknown(stage)
        stage.letter_of(failed)
        stage.nothing_unacked()

        worker.kill("SIGTERM")

        said = "not told to the result backend (the worker ends); their letters are kept: intaking.served"
        wait_until(lambda: stage.said(f"{said}[{failed.id}]"), 30, stage.logs)
        assert failed.state == "PENDING"
