"""Every private symbol of Celery that we touch exists and behaves as we rely on; a change fails here."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery, Task, signals, states
from celery.app import trace as celery_trace
from celery.app.annotations import prepare, resolve_all
from celery.app.task import Context
from celery.app.trace import TraceInfo, trace_ok_t
from celery.concurrency.gevent import TaskPool as GeventPool
from celery.concurrency.solo import TaskPool
from celery.exceptions import Retry, TimeLimitExceeded
from celery.utils.imports import symbol_by_name
from celery.worker import loops
from celery.worker import state as worker_state
from celery.worker.consumer.consumer import Consumer
from celery.worker.request import Request
from greenlet import GreenletExit

from hardening.private import KNOWN_VERSIONS, PRIVATE_SYMBOLS, celery_version, version_findings
from tests.helpers.hardened_apps import (
    as_worker,
    create_request_cls,
    fetch,
    make_app,
    no_hardening,
    plain_app,
    request_of,
    send,
    state,
)

pytestmark = pytest.mark.usefixtures("isolated")

build_tracer: Any = celery_trace.build_tracer
trace_task: Any = celery_trace.trace_task
trace_task_ret: Any = celery_trace.trace_task_ret


@pytest.fixture
def app():
    """A plain app: what we rely on is Celery's own behaviour."""
    with no_hardening():
        app = plain_app()
        app.finalize()
        yield app


def nothing(*args, **kwargs) -> None: ...


def info_of(exc: BaseException) -> ExceptionInfo:
    try:
        raise exc
    except BaseException:
        return ExceptionInfo()


def task_of(app, function=nothing, **options):
    return app.task(name="t", shared=False, **options)(function)


def test_the_list_covers_exactly_what_this_file_tests() -> None:
    tested = {
        "connect_on_app_finalize",
        "_get_active_apps",
        "default_app",
        "Task.__trace__",
        "Task.request_stack",
        "Task.annotate",
        "Context._protected",
        "Task.signature_from_request",
        "add_autoretry_behaviour",
        "trace_ok_t",
        "TraceInfo",
        "Request._context",
        "revoked.maxlen",
        "revoked.expires",
        "revoked_stamps",
        "task_ready",
        "Channel._lookup",
        "Channel._get_message_priority",
        "Channel._q_for_pri",
        "synloop",
        "Consumer.call_soon",
        # In test_chords.
        "push_current_task",
        "pop_current_task",
        # In test_intake_private.
        "Request._announce_revoked",
        "Backend._call_task_errbacks",
        # In test_twins_private.
        "Request._on_ack",
        "Request._on_reject",
        "ResultHandler.handle_event",
        "AsynPool._on_hard_timeout",
        "Consumer._restore_prefetch_count_after_connection_restart",
        "Consumer._new_prefetch_count",
        "AsynPool._on_soft_timeout",
        "active_requests",
        "requests",
        "successful_requests",
        # In test_leased_transport, and with real workers in tests/system/test_leases.
        "Channel._get_pool",
        "sleep",  # In test_gate_saturation.
        "Channel._brpop_read",
        "Channel._create_client",
        "Channel._on_connection_disconnect",
        "Channel._flush_brpop_reauth",
        "MultiChannelPoller._register_BRPOP",
        "MultiChannelPoller._client_registered",
        "MultiChannelPoller._register",
        "MultiChannelPoller.on_readable",
        "QoS.restore_unacked_once",
        "Consumer.on_close",
        "Consumer.on_connection_error_after_connected",
        "Consumer._limit_post_eta",
        # In test_shutdown_celery.
        "_shutdown_handler",
        "safe_say",
        "should_stop",
        "reserved_requests",
        "Request._apply_result",
        "TaskPool.on_stop",
        "Consumer._receive_callback",
        "QoS.restore_by_tag",
        # In test_green_reconnect.
        "Consumer.max_prefetch_count",
        "Consumer.connect",
        "TaskPool._pool",
        # In test_children_at_reconnect.
        "AsynPool._track_child_process",
        "Consumer.loop_args",
        "ResultHandler._recv_message",
        "AsynPool._create_write_handlers",
        # In test_poison_private.
        "Request._payload",
        "Request._already_cancelled",
        "Request._already_revoked",
        "should_terminate",
        "hybrid_to_proto2",
        "proto1_to_proto2",
        "AsynPool.on_partial_read",
        "Pool.mark_as_worker_lost",
        "ApplyResult._ack",
    }

    assert {path for _, path, _ in PRIVATE_SYMBOLS} == tested


@pytest.mark.parametrize(("module", "path", "why"), PRIVATE_SYMBOLS)
def test_the_symbol_exists_and_its_use_is_said(module, path, why) -> None:
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)

    assert len(why) > 10


def test_the_installed_versions_are_known() -> None:
    assert celery_version() in KNOWN_VERSIONS["celery"]
    assert version_findings() == []


def test_connect_on_app_finalize_calls_for_each_app_that_is_finalized_afterwards() -> None:
    seen: list[Celery] = []
    state.connect_on_app_finalize(seen.append)
    app = make_app("later")

    assert app not in seen
    app.finalize()

    assert app in seen


def test_a_finalizer_runs_before_the_tasks_of_its_app_are_bound() -> None:
    bound: list[object] = []
    app = make_app("later")

    @app.task(name="t", shared=False)
    def t(): ...

    state.connect_on_app_finalize(
        lambda each: bound.append("t" in each._tasks and type(each._tasks["t"]).__bound__)
    )
    app.finalize()

    assert bound[-1:] == [False]


def test_active_apps_lists_the_apps_that_exist(app) -> None:
    assert app in set(state._get_active_apps())


def test_default_app_is_none_where_no_app_was_made_and_else_the_first_of_the_project(monkeypatch) -> None:
    monkeypatch.setattr(state, "default_app", None)

    first = make_app("first")
    make_app("second")

    assert state.default_app is first


def test_celery_puts_a_tracer_into_trace_and_calls_what_it_reads_there(app) -> None:
    task = task_of(app)
    put: list[object] = []

    class Slot:
        def __get__(self, instance, owner=None):
            return (lambda *args: trace_ok_t("mine", None, 0.0, "")) if put and instance is not None else None

        def __set__(self, instance, value):
            put.append(value)

    app.finalize()
    type(app.tasks["t"]).__trace__ = Slot()

    outcome = trace_task(app.tasks["t"], "id", (), {}, {}, app=app)

    assert len(put) == 1
    assert callable(put[0])
    assert outcome.retval == "mine"
    assert task


def test_a_worker_answers_from_trace_and_a_failing_info_means_failed(app) -> None:
    task_of(app)
    app.finalize()
    task = app.tasks["t"]
    info = info_of(ValueError("x"))
    task.__trace__ = lambda *args: trace_ok_t(info, TraceInfo(states.FAILURE, ValueError("x")), 0.0, None)

    failed, value, runtime = trace_task_ret("t", "id", {}, ((), {}, {}), None, None, app=app)

    assert (failed, value, runtime) == (1, info, 0.0)


def test_an_answer_without_info_means_success(app) -> None:
    task_of(app)
    app.finalize()
    app.tasks["t"].__trace__ = lambda *args: trace_ok_t(1, None, 0.5, "one")

    assert trace_task_ret("t", "id", {}, ((), {}, {}), None, None, app=app) == (0, "one", 0.5)


def test_the_fields_of_an_outcome_are_those_that_we_read() -> None:
    assert trace_ok_t._fields == ("retval", "info", "runtime", "retstr")
    assert (TraceInfo("S", 1).state, TraceInfo("S", 1).retval) == ("S", 1)


def test_the_tracer_calls_the_task_itself_where_its_class_has_a_call_of_its_own(app) -> None:
    class Own(Task):
        abstract = True

        def __call__(self, *args, **kwargs):
            return "own call"

    task_of(app, base=Own)
    app.finalize()

    tracer = build_tracer("t", app.tasks["t"], app=app)

    assert tracer("id", (), {}, {}).retval == "own call"


@pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")
def test_a_tracer_that_could_not_begin_answers_with_an_error_and_no_info(app) -> None:
    task_of(app)
    app.finalize()

    outcome = build_tracer("t", app.tasks["t"], app=app)("id", (), "no mapping", {})

    assert outcome.info is None
    assert isinstance(outcome.retval, ExceptionInfo)


def test_the_request_on_the_stack_tells_a_delivery_from_a_direct_call(app) -> None:
    seen: list[tuple[Any, ...]] = []

    def look(self):
        top = self.request_stack.top
        seen.append((top.called_directly, top.is_eager, top.id))

    task = task_of(app, look, bind=True)
    app.finalize()

    task()
    task.apply(task_id="e")
    build_tracer("t", app.tasks["t"], app=app)("d", (), {}, {"id": "d"})

    assert seen[0][0] is True
    assert seen[1:] == [(False, True, "e"), (False, False, "d")]
    assert app.tasks["t"].request_stack.top is None


def test_celery_binds_a_task_by_annotating_it_after_the_settings_were_copied(app) -> None:
    order: list[tuple[str, ...]] = []

    class Ours:
        def annotate(self, task):
            order.append(tuple(name for name in task.__dict__ if name in ("_app", "acks_late", "early")))
            return {}

        def annotate_any(self):
            return {}

    app.conf.task_annotations = [Ours()]
    app.__dict__.pop("annotations", None)

    class Bound(Task):
        name = "bound"
        early = 1

        def run(self) -> None: ...

    app.register_task(Bound())

    # A class keeps the order in which its names came: what was written, `_app`, what was copied.
    assert order == [("early", "_app", "acks_late")]


def test_an_attribute_that_the_author_wrote_comes_before_app_in_the_class() -> None:
    app = make_app()

    @app.task(name="t", acks_late=False, shared=False)
    def t(): ...

    app.finalize()
    names = list(type(app.tasks["t"]).__dict__)

    assert names.index("acks_late") < names.index("_app")
    assert names.index("_app") < names.index("reject_on_worker_lost")


def test_the_first_annotation_that_answers_hides_the_others_even_with_nothing() -> None:
    class Silent:
        def annotate(self, task):
            return {}

        def annotate_any(self):
            return {}

    class Named(Task):
        name = "t"

    two: list[Any] = [{"t": {"a": 1}}, {"t": {"a": 2}}]
    alone: Any = resolve_all(prepare(two), Named)
    behind: Any = resolve_all(prepare([Silent(), *two]), Named)

    assert [dict(entry) for entry in alone] == [{"a": 1}]
    assert list(behind) == []


def test_app_annotations_is_remembered_on_the_instance(app) -> None:
    assert app.annotations is app.__dict__["annotations"]


def test_a_worker_marks_a_request_so_that_a_call_inside_it_is_a_direct_one(app) -> None:
    inner: list[object] = []

    def outer(self, depth):
        if depth:
            self(depth - 1)
        inner.append(tuple(self.request.args))

    task_of(app, outer, bind=True)
    app.finalize()
    assert vars(Context)["_protected"] == 0

    with as_worker(app):
        build_tracer("t", app.tasks["t"], app=app)("id", (1,), {}, {"id": "id"})

    assert inner == [(0,), (1,)]


def test_the_context_of_a_request_has_what_reports_to_callers_need(app) -> None:
    task = task_of(app)
    app.finalize()
    request = request_of(app, send(task, link_error=task.s()))

    context = request._context

    assert context.id == request.id
    assert [errback["task"] for errback in context.errbacks] == ["t"]


def test_celery_calls_errbacks_when_a_failure_is_marked_with_the_context(app) -> None:
    told: list[object] = []

    @app.task(name="errback", shared=False)
    def errback(request, exc, traceback):
        told.append((request.id, str(exc)))

    task = task_of(app)
    request = request_of(app, send(task, link_error=errback.s()))

    task.backend.mark_as_failure(request.id, ValueError("x"), request=request._context, store_result=True)

    assert told == [(request.id, "x")]


def test_the_properties_of_a_request_travel_to_the_child_and_not_on_with_a_retry(app) -> None:
    seen: list[object] = []

    def again(self):
        seen.append(self.request.properties.get("extra"))
        raise self.retry(exc=ValueError("x"), countdown=0)

    task = task_of(app, again, bind=True)
    app.finalize()
    request = request_of(app, send(task))
    request.request_dict["properties"] = {**request.request_dict["properties"], "extra": 1}

    request.execute_using_pool(request.own_pool)

    assert seen == [1]
    again_message = fetch(app)
    assert "extra" not in again_message.headers
    assert "extra" not in again_message.properties


def test_autoretry_calls_retry_from_its_own_module_and_by_keyword(app) -> None:
    calls = []

    @app.task(name="t", shared=False, autoretry_for=(ValueError,))
    def failing():
        raise ValueError

    def retry(**options):
        calls.append((sys._getframe(1).f_globals["__name__"], options))
        return Retry()

    failing.retry = retry
    with pytest.raises(Retry):
        failing()

    [(module, options)] = calls
    assert module == "celery.app.autoretry"
    assert isinstance(options["exc"], ValueError)


def test_a_limit_given_to_retry_is_left_on_the_task_that_all_requests_share(app) -> None:
    @app.task(name="t", bind=True, shared=False)
    def again(self):
        raise self.retry(max_retries=5, countdown=0)

    trace_task_ret(again.name, "i", {"id": "i"}, ((), {}, {}), None, None, app=app)

    assert again.override_max_retries == 5


def test_a_signature_from_a_request_keeps_its_id_and_the_count_that_it_is_given(app) -> None:
    task = task_of(app)
    request = Context(
        id="i", retries=3, args=[1], kwargs={}, delivery_info={"routing_key": "q", "exchange": ""}
    )

    signature = task.signature_from_request(request, None, None, countdown=5, retries=3, headers={"own": 1})

    assert signature.options["task_id"] == "i"
    assert signature.options["retries"] == 3
    assert signature.options["countdown"] == 5
    assert signature.options["headers"] == {"own": 1}
    assert signature.options["queue"] == "q"


def test_task_ready_takes_a_request_off_the_workers_books(app) -> None:
    task = task_of(app)
    app.finalize()
    request = request_of(app, send(task))
    assert request in worker_state.reserved_requests

    worker_state.task_ready(request)

    assert request not in worker_state.reserved_requests
    assert request.id not in worker_state.requests


@pytest.mark.parametrize(
    "method", ["on_failure", "on_timeout", "on_accepted", "acknowledge", "reject", "__init__"]
)
def test_celerys_own_request_class_below_ours_leaves_the_methods_that_we_override(method, app) -> None:
    task = task_of(app)
    app.finalize()

    class Base(Request):
        pass

    made = create_request_cls(Base, app.tasks["t"], TaskPool(1), "h", None, app=app)

    assert method not in made.__dict__
    assert task


def test_the_stock_request_is_named_by_the_path_that_we_replace(app) -> None:
    assert Task.Request in ("celery.worker.request:Request", "celery.worker.request.Request")
    assert symbol_by_name(Task.Request) is Request


def test_a_hard_limit_runs_the_failure_hooks_from_5_7_on_and_not_before(app) -> None:
    told: list[str] = []

    class Hooked(Task):
        abstract = True

        def on_failure(self, exc, task_id, args, kwargs, einfo):
            told.append("hook")

    def failed(**_: Any) -> None:
        told.append("signal")

    signals.task_failure.connect(failed, weak=False, dispatch_uid="contract")
    task = task_of(app, base=Hooked, acks_late=True)
    app.finalize()
    request = request_of(app, send(task))

    request.on_timeout(soft=False, timeout=1)

    signals.task_failure.disconnect(dispatch_uid="contract")
    assert told == (["hook", "signal"] if celery_version() >= (5, 7) else [])
    assert issubclass(TimeLimitExceeded, Exception)


def test_an_exit_of_the_child_is_a_lost_worker_from_5_7_on_and_an_acknowledged_failure_before(app) -> None:
    task = task_of(app, acks_late=True, reject_on_worker_lost=True)
    app.finalize()
    request = request_of(app, send(task))
    info = info_of(SystemExit("gone"))

    if celery_version() >= (5, 7):
        request.on_failure(info)
        assert request.answers.given == ["requeue"]
    else:
        with pytest.raises(Exception, match="not JSON serializable"):
            request.on_failure(info)
        assert request.answers.given == ["ack"]


def test_the_synchronous_loop_reads_the_event_connection_from_5_7_on_and_not_before() -> None:
    reads = "event_dispatcher" in inspect.getsource(loops)

    assert reads == (celery_version() >= (5, 7))


def test_acknowledgements_go_through_call_soon_before_5_7_and_have_their_own_way_since() -> None:
    assert hasattr(Consumer, "call_soon_ack") == (celery_version() >= (5, 7))
    assert "call_soon" in inspect.getsource(Consumer.create_task_handler)


def test_a_killed_greenlet_answers_what_a_success_answers() -> None:
    def killed() -> None:
        raise GreenletExit

    pool: Any = GeventPool
    assert pool._make_killable_target(killed)() == (False, None, None)
