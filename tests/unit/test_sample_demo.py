"""The parts of the demo that need no server: its jobs, its effect log, its look at the broker, its bar."""

from __future__ import annotations

import io
import json
import os

import pytest

from sample_project import effects
from sample_project.demo.broker import _delivery_key
from sample_project.demo.jobs import CASES, FEWEST, KILLED, amounts, plan
from sample_project.demo.progress import Progress
from sample_project.effects import Effect, EffectReader


@pytest.mark.parametrize("number", [FEWEST, 24, 40, 100, 300, 1001])
def test_a_plan_has_as_many_jobs_as_asked_and_each_kind_at_least_once(number):
    jobs = plan(number, webhooks="http://receiver")

    assert len({job.key for job in jobs}) == number
    assert {job.case for job in jobs} == set(CASES)


def test_the_job_to_be_killed_is_published_first_and_once():
    jobs = plan(300, webhooks="http://receiver")

    assert [i for i, job in enumerate(jobs) if job.case.kind == KILLED] == [0]


def test_no_kind_is_published_more_often_than_it_may():
    for case, times in amounts(100_000).items():
        assert times <= (case.at_most or times)


def test_too_few_jobs_are_refused():
    with pytest.raises(ValueError, match="one of each kind"):
        plan(FEWEST - 1, webhooks="http://receiver")


def test_the_arguments_of_every_job_can_be_sent_as_json():
    for job in plan(300, webhooks="http://receiver"):
        assert json.loads(json.dumps(job.args)) == list(job.args)


def test_a_reader_returns_each_line_once_and_leaves_a_torn_one_for_later(tmp_path):
    reader = EffectReader(tmp_path)
    effects.append(tmp_path, Effect(key="a", kind="task", outcome="started"))
    with (tmp_path / "1.log").open("w") as torn:
        torn.write('{"key": "b", "kind": "task", ')
        torn.flush()

        assert [effect.key for effect in reader.new()] == ["a"]

        torn.write('"outcome": "started"}\n')
        torn.flush()
        assert [effect.key for effect in reader.new()] == ["b"]
        assert reader.new() == []


def test_a_forked_process_writes_to_a_file_of_its_own(tmp_path):
    effects.append(tmp_path, Effect(key="parent", kind="task", outcome="started"))
    child = os.fork()
    if not child:
        effects.append(tmp_path, Effect(key="child", kind="task", outcome="started"))
        os._exit(0)
    os.waitpid(child, 0)

    assert {path.name for path in tmp_path.iterdir()} == {f"{os.getpid()}.log", f"{child}.log"}


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"headers": {"id": "a"}}, "a"),
        ([{"headers": {"id": "b", "hardening_key": "a"}}, "", "celery"], "a"),
        ({"headers": {"letter": "a"}}, "a"),
        ({"headers": {"id": "a", "hardening_beat": "5000 often"}}, None),
        ({"headers": {}}, None),
        ([], None),
        (3, None),
    ],
)
def test_the_broker_s_messages_are_known_by_their_delivery_key(raw, key):
    assert _delivery_key(json.dumps(raw)) == key


def test_what_is_not_a_message_has_no_delivery_key():
    assert _delivery_key("1.5") is None
    assert _delivery_key("no json") is None


def test_without_a_terminal_the_bar_is_one_line_for_each_quarter():
    stream = io.StringIO()
    bar = Progress("done", 100, stream=stream)

    for done in range(101):
        bar.show(done)
    bar.end()

    assert stream.getvalue().splitlines() == [f"  {n}/100 done" for n in (0, 25, 50, 75, 100)]


def test_on_a_terminal_the_bar_is_redrawn_in_place():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    bar = Progress("done", 4, stream=stream)
    bar.show(2)
    bar.show(4)
    bar.end()

    assert stream.getvalue().count("\r") == 2
    assert stream.getvalue().endswith("4/4 done\n")
