"""One task's policy: what its author wrote is told from what Celery copied, and an opt-out needs a reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery import Task

from hardening.plugin import policies_of
from hardening.policy import UNSET, explicit_attribute, opt_out_reason, source_of
from tests.helpers.hardened_apps import hardened_app, make_app

pytestmark = pytest.mark.usefixtures("isolated")


class NotLate(Task):
    abstract = True
    acks_late = False


class Silent(Task):
    abstract = True


def policy_of(app, name):
    return next(policy for policy in policies_of(app) if policy.name == name)


def asked(app, name):
    return {row.task_attribute: value for row, value in policy_of(app, name).contradictions}


def test_an_attribute_that_the_author_wrote_is_found() -> None:
    app = hardened_app()

    @app.task(name="written", acks_late=False)
    def written(): ...

    assert asked(app, "written") == {"acks_late": False}


def test_an_attribute_that_celery_copied_from_the_settings_is_not_the_authors() -> None:
    app = make_app(task_acks_late=False)

    @app.task(name="copied", shared=False)
    def copied(): ...

    app.finalize()
    assert type(app.tasks["copied"]).__dict__["acks_late"] is not None
    assert explicit_attribute(type(app.tasks["copied"]), "acks_late") is UNSET


def test_an_attribute_of_an_abstract_base_counts_as_written() -> None:
    app = hardened_app()

    @app.task(name="inherits", base=NotLate)
    def inherits(): ...

    assert asked(app, "inherits") == {"acks_late": False}
    assert explicit_attribute(NotLate, "acks_late") is False
    assert explicit_attribute(Silent, "acks_late") is UNSET


def test_an_attribute_copied_onto_a_bound_parent_is_not_inherited_as_written() -> None:
    app = make_app(task_acks_late=False)

    class Parent(Task):
        name = "parent"

        def run(self) -> None: ...

    class Child(Parent):
        name = "child"

    app.register_task(Parent())
    app.register_task(Child())
    app.finalize()

    assert explicit_attribute(Child, "acks_late") is UNSET


def test_a_task_may_say_itself_what_we_enforce() -> None:
    app = hardened_app()

    @app.task(name="agrees", acks_late=True)
    def agrees(): ...

    assert asked(app, "agrees") == {}
    assert app.tasks["agrees"].acks_late is True


def test_an_attribute_from_task_annotations_counts_as_written() -> None:
    app = hardened_app(task_annotations={"annotated": {"reject_on_worker_lost": False}})

    @app.task(name="annotated")
    def annotated(): ...

    assert asked(app, "annotated") == {"reject_on_worker_lost": False}


def test_an_annotation_that_agrees_outweighs_what_the_task_says() -> None:
    app = hardened_app(task_annotations={"overruled": {"acks_late": True}})

    @app.task(name="overruled", acks_late=False)
    def overruled(): ...

    assert asked(app, "overruled") == {}
    assert app.tasks["overruled"].acks_late is True


@pytest.mark.parametrize("reach_early", [True, False])
def test_a_task_that_was_bound_before_us_is_judged_the_same(reach_early) -> None:
    app = make_app()

    class Early(Task):
        name = "early"
        acks_late = False

        def run(self) -> None: ...

    class EarlyAndFine(Task):
        name = "early_and_fine"

        def run(self) -> None: ...

    from hardening import harden

    if not reach_early:
        harden(app)
    app.register_task(Early())
    app.register_task(EarlyAndFine())
    harden(app)

    assert asked(app, "early") == {"acks_late": False}
    assert asked(app, "early_and_fine") == {}
    assert app.tasks["early_and_fine"].acks_late is True
    assert app.tasks["early_and_fine"].reject_on_worker_lost is True


def test_a_pickle_serializer_of_one_task_is_a_contradiction() -> None:
    app = hardened_app()

    @app.task(name="pickles", serializer="pickle")
    def pickles(): ...

    assert asked(app, "pickles") == {"serializer": "pickle"}


def test_a_task_opts_out_by_a_reason_on_itself() -> None:
    app = hardened_app()

    @app.task(name="opted", early_ack="  a lost ping is harmless ")
    def opted(): ...

    policy = policy_of(app, "opted")
    assert policy.opt_out == "a lost ping is harmless"
    assert policy.early_ack
    assert app.tasks["opted"].acks_late is False
    assert app.tasks["opted"].reject_on_worker_lost is False


def test_a_task_opts_out_by_a_pattern_with_a_reason_in_the_settings(settings) -> None:
    settings.HARDENING = {"EARLY_ACK": {"metrics.*": "samples, not facts"}}
    app = hardened_app()

    @app.task(name="metrics.push")
    def push(): ...

    @app.task(name="orders.push")
    def order(): ...

    assert policy_of(app, "metrics.push").opt_out == "samples, not facts"
    assert app.tasks["metrics.push"].acks_late is False
    assert policy_of(app, "orders.push").opt_out == ""
    assert app.tasks["orders.push"].acks_late is True


@pytest.mark.parametrize("reason", ["", "  ", None, True, 1])
def test_an_opt_out_without_a_written_reason_is_none(reason) -> None:
    task = SimpleNamespace(name="a.b", early_ack=reason)

    assert opt_out_reason(task, {}) == ""
    assert opt_out_reason(SimpleNamespace(name="a.b"), {"a.*": reason}) == ""


def test_the_reason_on_the_task_is_preferred_and_patterns_obey_case() -> None:
    task = SimpleNamespace(name="a.b", early_ack="mine")

    assert opt_out_reason(task, {"a.*": "theirs"}) == "mine"
    assert opt_out_reason(SimpleNamespace(name="a.b"), {"A.*": "theirs"}) == ""
    assert opt_out_reason(SimpleNamespace(name="a.b"), {"x": "first", "a.?": "second"}) == "second"


def test_a_policy_names_file_and_line_of_the_function_also_behind_decorators() -> None:
    import functools

    app = hardened_app()

    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @app.task(name="where")
    @decorator
    def where(): ...

    class ByClass(Task):
        name = "by_class"

        def run(self) -> None: ...

    app.register_task(ByClass())

    def line_of(function) -> int:
        return int(function.__code__.co_firstlineno)

    original = where.run.__wrapped__
    assert policy_of(app, "where").source.endswith(f"test_hardening_policy.py:{line_of(original)}")
    assert policy_of(app, "by_class").source.endswith(f"test_hardening_policy.py:{line_of(ByClass.run)}")


def test_a_task_without_readable_source_is_named_by_its_module() -> None:
    class Odd:
        run = len

    Odd.__module__ = "nowhere"

    assert source_of(Odd()) == "module nowhere"
