"""Rehearses a task: its deliveries one after the other, without a broker and without waiting.

The argument. Everything that decides is the code that a worker runs: the guarded call, the retry, the
classifier and the policy. Only the outside is missing: a retry is not published but delivered at once,
its wait is taken off the time of the first publish, and the letter is given back instead of stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Literal
from uuid import uuid4

import celery._state
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.exceptions import Ignore, Retry
from kombu import serialization

from .capture import Delivery, Keeper
from .classification.verdict import Kind
from .core.errors import HardeningError
from .core.identity import FIRST_HEADER, PARKED_HEADER, first_header, first_moment
from .core.letter import DeadLetter
from .core.reasons import Reason
from .current import running
from .execution import Execution
from .history import attempt_number
from .plugin import hardened
from .reason import underlying
from .rehearsed import Ended, Rehearsal, RehearsedAttempt
from .retries.options import options_of
from .retries.traffic import Held, Traffic
from .store import Entry, StateStore
from .task import is_reached

__all__ = ["CannotRehearse", "Raises", "rehearse"]

# Without types: see hardening.private.
_state: Any = celery._state

Raises = BaseException | type[BaseException] | Callable[[int], BaseException | None]
"""What takes the place of a body: its error at each attempt, or a function from the attempt's number
(1, 2, ...) to its error, None for a success."""

Jitter = Literal["longest", "shortest"] | float


class CannotRehearse(HardeningError):
    """The task's app is not hardened, so nothing of ours would decide in a worker either."""


def rehearse(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    raises: Raises | None = None,
    jitter: Jitter = "longest",
    max_attempts: int = 100,
    store: StateStore | None = None,
) -> Rehearsal:
    """Run a task as a worker's deliveries would, retry after retry, until it is done or given up.

    `raises` takes the place of the body; without it the body runs, with all that it does. `jitter`
    chooses from each range of delays: its longest, its shortest, or a share from 0 to 1 in between.
    After `max_attempts` deliveries the rehearsal stops. Outages and retry budgets play no role unless
    a `store` is given, whose clock then goes on with the delays.

    Arguments go through the task's serializer as in a message. Nothing of ours reaches the broker,
    the result backend, a letter store or a state store. The hooks of the task (before_start, on_retry,
    on_failure, on_success, after_return) and Celery's signals do not run. `self.request.is_eager` is
    true. No clock is moved: times such as `RetryLater(datetime)` count from now at each attempt.

    Raises CannotRehearse for a task of an app in report mode, and whatever ends more than the task:
    MemoryError, KeyboardInterrupt, WorkerShutdown.
    """
    task = _hardened(task)
    stage = _Stage(task, _rng(jitter), store)
    first = first_header(time.time(), stage.task_id)
    message = _Message(tuple(args), dict(kwargs or {}), {FIRST_HEADER: first})
    attempts: list[RehearsedAttempt] = []
    while len(attempts) < max_attempts:
        run = stage.deliver(message, raises)
        attempts.append(run.attempt)
        if run.following is None:
            return Rehearsal(
                task_name=task.name,
                attempts=tuple(attempts),
                ended=run.ended,
                reason=None if run.letter is None else Reason(run.letter.reason),
                letter=run.letter,
                result=run.result,
            )
        message = run.following
    return Rehearsal(task_name=task.name, attempts=tuple(attempts), ended="unfinished")


@dataclass(frozen=True, slots=True)
class _Message:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    headers: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One delivery. `following` is the message that would have been published."""

    attempt: RehearsedAttempt
    ended: Ended = "unfinished"
    following: _Message | None = None
    letter: DeadLetter | None = None
    result: Any = None


class _Stage:
    """Where one message of a task is delivered again and again."""

    def __init__(self, task: Any, rng: Callable[[], float], store: StateStore | None) -> None:
        self.task = task
        self.rng = rng
        self.passed = 0.0
        self.task_id = str(uuid4())
        self.traffic: Traffic = _NoTraffic(task.app)
        if store is not None:
            moved = _Moved(store, lambda: self.passed)
            self.traffic = Traffic(
                task.app, store=moved, clock=lambda: time.monotonic() + self.passed, rng=rng
            )

    def deliver(self, message: _Message, raises: Raises | None) -> _Run:
        number = attempt_number(message.options.get("retries", 0))
        body = None if raises is None else _stand_in(raises, number)
        delivery, args, kwargs, request = self._received(message)
        keeper = _Keeping(self.task.app)
        execution = Execution(self.task, self.task_id, delivery, keeper, self.traffic)
        execution.rehearsed, execution.random = True, self.rng
        raised: BaseException | None = None
        result: Any = None
        with _performing(execution, request, body) as published:
            try:
                result = self.task(*args, **kwargs)
            except BaseException as exc:
                raised = exc
        if execution.retry_sent:
            if not published:
                raise CannotRehearse(f"the retry() of task {self.task.name} publishes by itself") from raised
            delay = _delay_of(published[-1])
            following = self._after(published[-1], delay)
            parked = following.headers.get(PARKED_HEADER) != message.headers.get(PARKED_HEADER)
            attempt = _attempt(execution, raised, number, delay=delay, parked=parked)
            return _Run(attempt=attempt, following=following)
        attempt = _attempt(execution, raised, number)
        if keeper.kept is not None:
            return _Run(attempt=attempt, ended="dead_letter", letter=keeper.kept)
        return _Run(attempt=attempt, ended=_end_of(raised), result=result)

    def _received(self, message: _Message) -> tuple[Delivery, Any, Any, Context]:
        """The message as a worker gets it: what the serializer makes of it, and its request."""
        app, task = self.task.app, self.task
        given = {name: value for name, value in message.options.items() if name not in _NOT_TOLD}
        told = app.amqp.as_task_v2(self.task_id, task.name, message.args, message.kwargs, **given)
        headers = {**told.headers, **message.headers}
        serializer = task.serializer or app.conf.task_serializer
        content_type, encoding, body = serialization.dumps(told.body, serializer)
        args, kwargs, embedded = serialization.loads(body, content_type, encoding, accept=[content_type])
        queue = self._queue(message)
        delivery = Delivery(
            body, content_type, encoding, headers, told.properties, "", queue, False, os.getpid()
        )
        request = {
            **headers,
            **embedded,
            "is_eager": True,
            "hostname": "rehearsal",
            "properties": dict(told.properties),
            "delivery_info": {"exchange": "", "routing_key": queue, "priority": None, "redelivered": False},
        }
        return delivery, args, kwargs, Context(request, args=args, kwargs=kwargs, called_directly=False)

    def _queue(self, message: _Message) -> str:
        task = self.task
        queue = message.options.get("queue") or getattr(task, "queue", None)
        options = {"queue": queue} if queue else {}
        route = task.app.amqp.router.route(options, task.name, message.args, message.kwargs, task_type=task)
        found = route.get("queue") or route.get("routing_key") or ""
        return str(getattr(found, "name", found))

    def _after(self, sent: Any, delay: float) -> _Message:
        """The message of a retry as it is delivered, `delay` seconds later: it has become older."""
        headers = dict(sent.options.get("headers") or {})
        first = first_moment(headers.get(FIRST_HEADER), self.task_id) or time.time()
        headers[FIRST_HEADER] = first_header(first - delay, self.task_id)
        self.passed += delay
        return _Message(tuple(sent.args), dict(sent.kwargs), headers, dict(sent.options))


_NOT_TOLD = frozenset({"task_id", "headers", "countdown", "eta"})
"""Options of a signature that stand elsewhere in our messages, or, as a time that has come, nowhere."""


class _Keeping(Keeper):
    """Gives the letter back instead of keeping it."""

    kept: DeadLetter | None = None

    def keep(self, letter: DeadLetter) -> None:
        self.kept = letter


class _NoTraffic(Traffic):
    """No dependency is down, and every budget has room."""

    def admit(self, execution: Any) -> Held | None:
        return None

    def succeeded(self, execution: Any) -> None:
        pass

    def failed(self, tag: str, execution: Any) -> float | None:
        return None

    def said_nothing(self, execution: Any) -> None:
        pass

    def withdraw(self, task_name: str) -> float:
        return 0.0


class _Moved:
    """A store whose clock goes on with the delays of a rehearsal."""

    def __init__(self, store: StateStore, passed: Callable[[], float]) -> None:
        self._store = store
        self._passed = passed

    def read(self, key: str) -> Entry:
        entry = self._store.read(key)
        return replace(entry, now=entry.now + self._passed())

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        return self._store.swap(key, version=version, value=value, ttl_seconds=ttl_seconds)

    def close(self) -> None:
        self._store.close()


def _hardened(task: Any) -> Any:
    app = task.app
    if hardened(app).reporting:
        raise CannotRehearse(
            f'HARDENING["MODE"] is "report": the errors of {task.name} are Celery\'s own business, '
            "and a rehearsal would show what does not happen"
        )
    bound = app.tasks[task.name]
    if not is_reached(type(bound)):
        raise CannotRehearse(f"task {task.name} was not reached by enforcement; this is our defect")
    return bound


def _rng(jitter: Jitter) -> Callable[[], float]:
    share = {"longest": 1.0, "shortest": 0.0}.get(jitter, jitter) if isinstance(jitter, str) else jitter
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(f'jitter is {jitter!r}: give "longest", "shortest" or a number from 0 to 1')
    return lambda: float(share)


def _stand_in(raises: Raises, number: int) -> Callable[..., None]:
    fixed = isinstance(raises, (BaseException, type))
    error: Any = raises if fixed else raises(number)  # type: ignore[operator]
    trace = getattr(error, "__traceback__", None)

    def body(*args: Any, **kwargs: Any) -> None:
        if isinstance(error, BaseException):
            raise error.with_traceback(trace)  # Raised before, it would carry the frames of every time.
        if error is not None:
            raise error

    return body


@contextmanager
def _performing(execution: Execution, request: Any, body: Callable[..., None] | None) -> Iterator[list[Any]]:
    """The task as in a worker, with this request. Gives the signatures of the retries that it publishes."""
    task = execution.task
    published: list[Any] = []
    sign = task.signature_from_request

    def signed(*args: Any, **kwargs: Any) -> Any:
        published.append(sign(*args, **kwargs))
        return published[-1]

    changes = {"signature_from_request": signed, "_backend": DisabledBackend(app=task.app)}
    if body is not None:
        name = "_orig_run" if hasattr(task, "_orig_run") else "run"  # Inside autoretry_for, if there is any.
        changes[name] = wraps(getattr(task, name))(body)
    before = {name: task.__dict__[name] for name in changes if name in task.__dict__}
    task.__dict__.update(changes)
    token = running.set(execution)
    _state.push_current_task(task)
    task.request_stack.push(request)
    try:
        yield published
    finally:
        task.request_stack.pop()
        _state.pop_current_task()
        running.reset(token)
        for name in changes:
            del task.__dict__[name]
        task.__dict__.update(before)


def _delay_of(sent: Any) -> float:
    eta = sent.options.get("eta")
    if isinstance(eta, datetime):
        now = datetime.now(eta.tzinfo or UTC)
        return max(0.0, ((eta if eta.tzinfo else eta.replace(tzinfo=UTC)) - now).total_seconds())
    return float(sent.options.get("countdown") or 0.0)


def _end_of(raised: BaseException | None) -> Ended:
    if raised is None:
        return "done"
    if isinstance(raised, Ignore):
        return "ignored"
    raise raised


def _attempt(
    execution: Execution,
    raised: BaseException | None,
    number: int,
    *,
    delay: float | None = None,
    parked: bool = False,
) -> RehearsedAttempt:
    judged = execution.judged
    step, decision = execution.decided or (None, "")
    verdict = step.verdict if step else judged[1] if judged else None
    error: BaseException | None
    if isinstance(raised, Retry):
        error = raised.exc
    elif raised is None:
        error = judged[0] if judged else None
    else:
        error = underlying(execution.ended_by or raised)
    policy = ""
    if step and step.verdict.kind is not Kind.PERMANENT:
        policy = options_of(execution.task).policy(step.verdict.retry).describe()
    return RehearsedAttempt(
        number=number,
        error=error,
        verdict=verdict,
        delay=delay,
        parked=parked,
        decision=decision,
        policy=policy,
    )
