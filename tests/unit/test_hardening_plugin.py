"""harden(app): every app and every task is reached, in whatever order they come, and nothing else changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task, shared_task
from celery.bootsteps import StartStopStep
from celery.utils.imports import symbol_by_name
from celery.worker.request import Request

from hardening import harden
from hardening.plugin import _apps, harden_every_app, hardened, policies_of, unreached
from hardening.request import HardenedRequest
from hardening.task import is_reached
from tests.helpers.hardened_apps import hardened_app, make_app, no_hardening, plain_app, state

pytestmark = pytest.mark.usefixtures("isolated")


class OwnCall(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        return "wrapped", super().__call__(*args, **kwargs)


class OwnCallNoSuper(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        return "never runs the body"


class WithBase(Task):
    abstract = True


class CustomRequest(Request):
    marker = "the project's own"


def assert_reached(app: Celery, name: str) -> None:
    task = app.tasks[name]
    assert is_reached(type(task))
    assert task.acks_late is True
    assert task.reject_on_worker_lost is True
    assert issubclass(symbol_by_name(task.Request), HardenedRequest)
    assert name in {policy.name for policy in policies_of(app)}
    assert unreached(app) == ()


def test_hardening_twice_is_hardening_once() -> None:
    app = make_app()

    assert harden(app) is app
    first = hardened(app)
    steps = set(app.steps["consumer"])
    assert harden(app) is app

    assert hardened(app) is first
    assert set(app.steps["consumer"]) == steps
    assert len(app.conf.task_annotations) == 1


def test_an_app_that_was_configured_before_is_hardened_at_once() -> None:
    app = make_app()
    assert app.conf.task_acks_late is False

    harden(app)

    assert app.conf.task_acks_late is True


def test_an_app_that_is_configured_later_is_hardened_then() -> None:
    app = make_app(worker_concurrency=3)

    harden(app)

    assert not app.configured
    assert app.conf.task_acks_late is True
    assert app.conf.worker_concurrency == 3


@pytest.mark.parametrize("looked_at_before", [True, False])
def test_config_from_object_after_hardening_keeps_both_the_settings_and_ours(looked_at_before) -> None:
    app = Celery("late_config", set_as_current=False)
    harden(app)
    if looked_at_before:
        assert app.conf.task_acks_late is True

    app.config_from_object(
        SimpleNamespace(CELERY_BROKER_URL="memory://", CELERY_TASK_IGNORE_RESULT=True), namespace="CELERY"
    )

    @app.task(name="after")
    def after(): ...

    assert app.conf.task_ignore_result is True
    assert app.conf.task_acks_late is True
    assert_reached(app, "after")


def test_config_from_object_after_hardening_is_judged_by_its_own_settings() -> None:
    app: Any = Celery("late_config", set_as_current=False)
    harden(app)
    assert app.conf.task_acks_late

    app.config_from_object(SimpleNamespace(CELERY_TASK_ACKS_LATE=False), namespace="CELERY")

    assert not app.conf.task_acks_late
    assert hardened(app).project["task_acks_late"] is False


def test_options_of_the_project_with_a_prefix_are_joined_by_ours_and_not_hiding_them() -> None:
    app = Celery("prefixed", set_as_current=False)
    source = SimpleNamespace(
        CELERY_BROKER_URL="redis://h/0", CELERY_BROKER_TRANSPORT_OPTIONS={"visibility_timeout": 60}
    )
    app.config_from_object(source, namespace="CELERY")

    hardened(app)

    assert app.conf.broker_transport_options == {
        "visibility_timeout": 60,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }


def test_annotations_of_the_project_with_a_prefix_are_applied_and_so_are_ours() -> None:
    app = Celery("annotated", set_as_current=False)
    source = SimpleNamespace(
        CELERY_BROKER_URL="memory://", CELERY_TASK_ANNOTATIONS={"*": {"rate_limit": "7/m"}}
    )
    app.config_from_object(source, namespace="CELERY")
    hardened(app)

    @app.task(name="t", shared=False)
    def t(): ...

    assert app.tasks["t"].rate_limit == "7/m"
    assert unreached(app) == ()


def test_tasks_of_every_style_are_reached() -> None:
    app = hardened_app()

    @shared_task(name="shared")
    def shared(): ...

    @app.task(name="of_app", bind=True)
    def of_app(self): ...

    @app.task(name="explicit_base", base=WithBase)
    def explicit_base(): ...

    @app.task(name="own_call", base=OwnCall)
    def own_call(): ...

    @app.task(name="own_call_no_super", base=OwnCallNoSuper)
    def own_call_no_super(): ...

    class ClassBased(Task):
        name = "class_based"

        def run(self) -> None: ...

    app.register_task(ClassBased())

    for name in ("shared", "of_app", "explicit_base", "own_call", "own_call_no_super", "class_based"):
        assert_reached(app, name)
    assert not is_reached(WithBase)
    assert not is_reached(OwnCall)


def test_celerys_own_tasks_are_reached_too() -> None:
    app = hardened_app()

    assert_reached(app, "celery.chord_unlock")


def test_a_task_registered_before_hardening_is_reached() -> None:
    app = make_app()

    class Early(Task):
        name = "early"

        def run(self) -> None: ...

    app.register_task(Early())
    assert type(app._tasks["early"]).__dict__["__bound__"]

    harden(app)

    assert_reached(app, "early")


@pytest.mark.parametrize("by_class", [True, False])
def test_a_task_registered_after_finalize_is_reached(by_class) -> None:
    app = hardened_app()
    app.finalize()

    if by_class:

        class Late(Task):
            name = "late"

            def run(self) -> None: ...

        app.register_task(Late())
    else:

        @app.task(name="late")
        def late(): ...

    assert_reached(app, "late")


def test_an_app_hardened_after_it_was_finalized_has_all_its_tasks_reached() -> None:
    with no_hardening():
        app = make_app()

        @app.task(name="done", shared=False)
        def done(): ...

        app.finalize()
        assert not is_reached(type(app.tasks["done"]))

    harden(app)

    assert_reached(app, "done")


def test_two_apps_share_a_task_and_each_is_hardened_for_itself() -> None:
    @shared_task(name="both")
    def both(): ...

    first, second = hardened_app("first"), hardened_app("second", task_acks_late=False)

    assert_reached(first, "both")
    assert type(first.tasks["both"]) is not type(second.tasks["both"])
    assert first.conf.task_acks_late is True
    assert second.conf.task_acks_late is False
    assert hardened(second).project["task_acks_late"] is False
    assert hardened(first).project == {}


def test_one_task_class_registered_in_two_apps_is_known_to_both() -> None:
    class Common(Task):
        name = "common"

        def run(self) -> None: ...

    first, second = hardened_app("first"), hardened_app("second")
    first.register_task(Common())
    second.register_task(Common())

    assert_reached(first, "common")
    assert_reached(second, "common")


def test_an_app_that_is_created_later_is_hardened_when_it_is_finalized() -> None:
    harden_every_app()

    app = make_app("late")

    @app.task(name="in_late_app")
    def in_late_app(): ...

    app.finalize()

    assert app in _apps
    assert_reached(app, "in_late_app")


def test_an_app_that_exists_is_hardened_by_harden_every_app(monkeypatch) -> None:
    app = make_app("existing")
    monkeypatch.setattr(state, "_get_active_apps", lambda: {app})

    harden_every_app()

    assert app in _apps


def test_a_task_derived_from_a_reached_task_is_reached_for_itself() -> None:
    app = hardened_app()

    class Parent(Task):
        name = "parent"

        def run(self) -> str:
            return "parent"

    class Child(Parent):
        name = "child"

        def run(self) -> str:
            return f"child of {super().run()}"

    app.register_task(Parent())
    app.register_task(Child())

    assert_reached(app, "parent")
    assert_reached(app, "child")
    assert app.tasks["child"].apply().get() == "child of parent"


def test_a_request_class_of_the_projects_own_gets_the_guard_mixed_in() -> None:
    app = hardened_app()

    @app.task(name="with_class", Request=CustomRequest)
    def with_class(): ...

    @app.task(name="with_path", Request=f"{__name__}:CustomRequest")
    def with_path(): ...

    for name in ("with_class", "with_path"):
        request = symbol_by_name(app.tasks[name].Request)
        assert issubclass(request, HardenedRequest)
        assert issubclass(request, CustomRequest)
        assert request.marker == "the project's own"
        assert_reached(app, name)


def test_a_request_class_that_is_guarded_already_is_left_as_it_is() -> None:
    class Guarded(HardenedRequest):
        pass

    app = hardened_app()

    @app.task(name="guarded", Request=Guarded)
    def guarded(): ...

    app.finalize()
    assert app.tasks["guarded"].Request is Guarded


def test_a_boot_step_of_the_projects_stays_beside_ours() -> None:
    class Own(StartStopStep):
        pass

    app = make_app()
    app.steps["consumer"].add(Own)

    harden(app)

    assert {Own, "hardening.worker.Upkeep"} <= set(app.steps["consumer"])


def test_report_mode_writes_nothing(settings) -> None:
    settings.HARDENING = {"MODE": "report"}
    app = make_app(broker_transport_options={"a": 1})
    with no_hardening():
        plain = plain_app(broker_transport_options={"a": 1}, task_default_queue=app.conf.task_default_queue)

        class Own(Task):
            def run(self) -> None: ...

        plain.register_task(type("OwnOfPlain", (Own,), {"name": "own"})())
        plain.finalize()
    app.register_task(type("OwnOfApp", (Own,), {"name": "own"})())

    harden(app)
    app.finalize()
    policies_of(app)

    ours, theirs = type(app.tasks["own"]), type(plain.tasks["own"])
    assert set(ours.__dict__) == set(theirs.__dict__)
    assert ours.Request == theirs.Request
    assert ours.__call__ is Task.__call__
    assert ours.retry is Task.retry
    assert {**app.conf} == {**plain.conf}
    assert app.steps == plain.steps
    assert hardened(app).reporting


def test_a_setting_of_the_projects_that_contradicts_is_not_overwritten() -> None:
    app = hardened_app(task_acks_late=False, worker_prefetch_multiplier=8)

    @app.task(name="t")
    def t(): ...

    app.finalize()

    assert app.conf.task_acks_late is False
    assert app.conf.worker_prefetch_multiplier == 8
    assert app.tasks["t"].acks_late is False
