"""The project's own task_annotations work as they do without us, and ours is still there."""

from __future__ import annotations

import functools

import pytest
from celery import Task

from hardening.plugin import policies_of, unreached
from hardening.task import is_reached
from tests.helpers.hardened_apps import hardened_app, no_hardening, plain_app

pytestmark = pytest.mark.usefixtures("isolated")

SEEN = ("rate_limit", "time_limit", "default_retry_delay", "max_retries", "priority", "mark")


def double(function):
    """A "@" annotation: wraps a method of the task."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ("doubled", function(*args, **kwargs))

    return wrapper


class ByObject:
    """An annotation object, as Celery's documentation shows one."""

    def annotate(self, task):
        if task.name.startswith("second"):
            return {"rate_limit": "7/s", "mark": "by object"}
        return None

    def annotate_any(self):
        return {"priority": 3}


ANNOTATIONS = {
    "none": None,
    "empty dict": {},
    "one task": {"first": {"rate_limit": "10/s", "time_limit": 3}},
    "star": {"*": {"rate_limit": "10/s", "mark": "star"}},
    "task and star": {"first": {"mark": "task"}, "*": {"mark": "star", "rate_limit": "1/m"}},
    "list": [{"first": {"mark": "list 1"}}, {"*": {"time_limit": 9}}, {"first": {"mark": "list 2"}}],
    "tuple": ({"*": {"mark": "a"}}, {"second": {"mark": "b"}}),
    "object": ByObject(),
    "objects and dicts": [ByObject(), {"first": {"rate_limit": "2/s"}}],
    "dotted path": f"{__name__}.ByObject",
    "wrapper": {"first": {"@run": double}},
    "wrapper on call": {"first": {"@__call__": double}},
    "wrapper on every": {"*": {"@run": double}},
    "another task only": {"nobody": {"mark": "x"}},
}


class Second(Task):
    name = "second"

    def run(self, value):
        return ("second", value)


def filled(app):
    @app.task(name="first", shared=False)
    def first(value):
        return ("first", value)

    app.register_task(type("Second", (Second,), {})())
    app.finalize()
    return app


def looks(app):
    """What a project can see of its tasks."""
    return {
        name: {attribute: getattr(app.tasks[name], attribute, "absent") for attribute in SEEN}
        | {
            "call": outcome(lambda name=name: app.tasks[name](1)),
            "apply": outcome(lambda name=name: app.tasks[name].apply((1,)).get()),
        }
        for name in ("first", "second")
    }


def outcome(call):
    """A value or an error: "@run" breaks tasks that are no methods, with and without us."""
    try:
        return call()
    except TypeError as exc:
        return str(exc)


@pytest.mark.parametrize("annotations", ANNOTATIONS.values(), ids=ANNOTATIONS)
def test_annotations_are_applied_as_without_us(annotations) -> None:
    with no_hardening():
        plain = looks(filled(plain_app(task_annotations=annotations)))
    app = filled(hardened_app(task_annotations=annotations))

    assert looks(app) == plain
    assert unreached(app) == ()
    assert all(is_reached(type(task)) for task in app.tasks.values())
    assert {policy.name for policy in policies_of(app)} == set(app.tasks)
    assert app.tasks["first"].acks_late is True


def test_annotations_set_after_hardening_and_before_the_first_task_are_applied_and_the_tasks_reached() -> (
    None
):
    app = hardened_app()
    assert app.conf.task_acks_late
    app.conf.update(task_annotations={"first": {"mark": "late"}})

    filled(app)
    policies_of(app)

    assert app.tasks["first"].mark == "late"
    assert unreached(app) == ()
    assert app.tasks["first"].acks_late is True


def test_annotations_do_not_touch_an_early_bound_task_a_second_time() -> None:
    from hardening import harden

    calls: list[str] = []

    def count(function):
        calls.append("wrapped")
        return double(function)

    with no_hardening():
        app = plain_app(task_annotations={"second": {"@run": count}})
        app.register_task(type("Second", (Second,), {})())
    harden(app)
    app.finalize()

    assert calls == ["wrapped"]
    assert app.tasks["second"](1) == ("doubled", ("second", 1))
    assert unreached(app) == ()


def test_an_annotation_that_takes_our_place_is_heard_and_the_safe_value_kept() -> None:
    app = hardened_app(task_annotations={"*": {"acks_late": False}})

    filled(app)

    contradicting = [policy.name for policy in policies_of(app) if policy.contradictions]
    assert "first" in contradicting
    assert app.tasks["first"].acks_late is False  # As written; the worker refuses to start.
