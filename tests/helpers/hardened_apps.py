"""Celery apps, messages and requests for tests: real ones, in this process, on the memory broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import celery._state
from celery import Celery
from celery.app.trace import reset_worker_optimizations, setup_worker_optimizations, trace_task_ret
from celery.backends.base import KeyValueStoreBackend
from celery.concurrency.solo import TaskPool
from celery.utils.imports import symbol_by_name
from celery.worker import request as worker_request
from celery.worker.state import task_reserved
from kombu import Queue

from hardening import harden
from hardening.core.errors import SinkUnavailable
from hardening.core.letter import DeadLetter

state: Any = celery._state
create_request_cls: Any = worker_request.create_request_cls  # type: ignore[attr-defined]

EVENTS: list[str] = []
"""What the backend and the sink below saw, in order: "backend SUCCESS", "letter error", "errback"."""

LETTERS: list[DeadLetter] = []
"""What RecordingSink kept."""

SINK = {
    "DEAD_LETTER_SINK": {"BACKEND": "tests.helpers.hardened_apps.RecordingSink"},
    "RETRY": {"AUTOMATIC": False},
}
"""A value for settings.HARDENING: letters go to LETTERS, and only what asks for a retry is tried again."""

BACKEND = "tests.helpers.hardened_apps:RecordingBackend"


class StoreDown(ConnectionError):
    """The result backend does not answer."""


class RecordingBackend(KeyValueStoreBackend):
    """A result backend in memory. While `down`, each write fails."""

    supports_native_join = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.values: dict[Any, Any] = {}
        self.down = False

    def get(self, key: Any) -> Any:
        return self.values.get(key)

    def mget(self, keys: Any) -> Any:
        return [self.values.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        self.values[key] = value

    def delete(self, key: Any) -> None:
        self.values.pop(key, None)

    def store_result(self, task_id: Any, result: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if self.down:
            raise StoreDown("no result backend")
        EVENTS.append(f"backend {state}")
        return super().store_result(task_id, result, state, *args, **kwargs)


class RecordingSink:
    """Keeps letters in LETTERS; refuses as long as `down`."""

    down = False

    def keep(self, letter: DeadLetter) -> None:
        if RecordingSink.down:
            raise SinkUnavailable("no letter store")
        EVENTS.append(f"letter {letter.reason}")
        LETTERS.append(letter)


def make_app(name: str = "hardened", *, backend: str = BACKEND, **conf: Any) -> Any:
    """A Celery app with a broker in memory and a queue of its own, without its types: tests look inside."""
    app = Celery(name, broker="memory://", backend=backend, set_as_current=False)
    app.conf.update({"task_default_queue": f"q-{uuid4().hex[:8]}", **conf})
    return app


def hardened_app(name: str = "hardened", **options: Any) -> Any:
    """The same, hardened."""
    return harden(make_app(name, **options))


@contextmanager
def no_hardening() -> Iterator[None]:
    """Apps that are finalized in this block stay plain, for comparison."""
    everyone = state._on_app_finalizers
    state._on_app_finalizers = {each for each in everyone if each is not harden}
    try:
        yield
    finally:
        state._on_app_finalizers = everyone


def plain_app(name: str = "plain", **options: Any) -> Any:
    """A plain app, not yet finalized: use and finalize it inside `no_hardening`."""
    return make_app(name, **options)


def fetch(app: Any, queue: str | None = None) -> Any:
    """Take one message off the broker, unacknowledged, as a worker gets it; None when there is none."""
    name = queue or app.conf.task_default_queue
    connection = app.connection_for_read()
    message: Any = Queue(name)(connection.default_channel).get(no_ack=False)
    if message is not None:
        message.of_connection = connection  # Alive as long as the message.
    return message


def waiting(app: Any, queue: str | None = None) -> int:
    """How many messages are ready on the broker."""
    with app.connection_for_read() as connection:
        return int(connection.default_channel._size(queue or app.conf.task_default_queue))


@dataclass
class Answers:
    """What a request told the broker."""

    given: list[str] = field(default_factory=list)

    def ack(self, *_: Any) -> None:
        self.given.append("ack")

    def reject(self, _logger: Any, _errors: Any, requeue: bool = False) -> None:
        self.given.append("requeue" if requeue else "reject")


def request_of(app: Celery, message: Any, *, trace: Callable[..., Any] | None = None) -> Any:
    """The worker's request for a message, made the way Celery's strategy makes it.

    `request.answers.given` lists what it told the broker; `run(request)` runs it in a solo pool.
    """
    task = app.tasks[message.headers["task"]]
    pool = TaskPool(1)
    cls = create_request_cls(
        symbol_by_name(task.Request),
        task,
        pool,
        "w1@host",
        None,
        trace=trace or partial(trace_task_ret, app=app),
        app=app,
    )
    answers = Answers()
    request = cls(
        message,
        on_ack=answers.ack,
        on_reject=answers.reject,
        app=app,
        hostname="w1@host",
        eventer=None,
        task=task,
        connection_errors=(),
        body=message.body,
        headers=message.headers,
        decoded=False,
        utc=True,
    )
    request.answers = answers
    request.own_pool = pool
    task_reserved(request)
    return request


def run(request: Any) -> list[str]:
    """Run a request as a worker does; returns what the broker was told."""
    request.execute_using_pool(request.own_pool)
    return list(request.answers.given)


def send(task: Any, *args: Any, **options: Any) -> Any:
    """Publish a task and take its message off the broker again."""
    task.apply_async(args, **options)
    return fetch(task.app)


def process(task: Any, *args: Any, **options: Any) -> Any:
    """Publish, fetch and run; returns the request."""
    request = request_of(task.app, send(task, *args, **options))
    run(request)
    return request


def trace_of(request: Any) -> Any:
    """What the child answers for a request: (failed, value or ExceptionInfo, runtime)."""
    return trace_task_ret(
        request.task.name,
        request.id,
        request.request_dict,
        request.body,
        request.content_type,
        request.content_encoding,
        app=request.task.app,
    )


def cut_off(app: Any) -> None:
    """From now on the broker takes no message of this app's: nothing listens at its address."""
    app.conf.broker_url = app.conf.broker_write_url = "amqp://127.0.0.1:1//"
    app.conf.task_publish_retry_policy = {"max_retries": 0, "interval_start": 0}
    app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    app.amqp._producer_pool = None
    app.amqp.__dict__.pop("send_task_message", None)  # It remembers the publish policy.


@contextmanager
def as_worker(app: Celery) -> Iterator[None]:
    """Celery's changes to a worker process: above all `Task.__call__`, for those that call super."""
    current, default = state._tls.current_app, state.default_app
    setup_worker_optimizations(app, "w1@host")
    try:
        yield
    finally:
        reset_worker_optimizations(app)
        state._tls.current_app, state.default_app = current, default
