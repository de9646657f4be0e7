"""Tasks in every style, and tasks that end in every way."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from celery import Task, shared_task
from celery.exceptions import Reject

from hardening import Permanent

from .celery import app
from .effects import hold, hold_and_fail, record


@shared_task(name="shared")
def shared() -> None:
    hold_and_fail("shared")


@app.task(name="of_app", bind=True)
def of_app(self: Task) -> None:
    assert self.request.id
    hold_and_fail("of_app")


class ClassBased(Task):
    name = "class_based"

    def run(self) -> None:
        hold_and_fail("class_based")


app.register_task(ClassBased())


class Counting(Task):
    """A project's own base, with hooks."""

    abstract = True

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        record(f"on_failure {self.name} {task_id}")


@shared_task(name="with_base", base=Counting)
def with_base() -> None:
    hold_and_fail("with_base")


class Calling(Task):
    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        record(f"call {self.name} {self.request.id}")
        return super().__call__(*args, **kwargs)


@shared_task(name="own_call", base=Calling, bind=True)
def own_call(self: Task) -> None:
    assert self.request.id, "the request is still there behind super().__call__"
    hold_and_fail("own_call")


class CallingWithoutRun(Task):
    """Its __call__ never calls run."""

    name = "own_call_no_super"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hold_and_fail("own_call_no_super")

    def run(self) -> None:
        record("run of own_call_no_super")


app.register_task(CallingWithoutRun())


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's decorator, made as most are."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        record(f"decorator of {function.__name__}")
        return function(*args, **kwargs)

    return wrapper


@shared_task(name="decorated")
@recorded
def decorated() -> None:
    hold_and_fail("decorated")


@shared_task(name="succeed")
def succeed(value: Any = None, **kwargs: Any) -> Any:
    record("succeed")
    return value


@shared_task(name="held", bind=True)
def held(self: Task) -> None:
    hold(f"held {self.request.id}")


@shared_task(name="fail_for_good", bind=True, autoretry_for=(Exception,), retry_kwargs={"countdown": 0.3})
def fail_for_good(self: Task, *args: Any, **kwargs: Any) -> None:
    record(f"fail_for_good {self.request.id}")
    raise Permanent("never again")


@shared_task(
    name="exhaust", bind=True, autoretry_for=(ValueError,), max_retries=2, retry_kwargs={"countdown": 0.3}
)
def exhaust(self: Task) -> None:
    record(f"exhaust {self.request.id}")
    raise ValueError(f"attempt {self.request.retries + 1}")


@shared_task(name="exhaust_by_hand", bind=True, max_retries=1)
def exhaust_by_hand(self: Task, secret_number: int = 0, password: str = "") -> None:
    try:
        raise RuntimeError(f"no luck; {password}")
    except RuntimeError as exc:
        raise self.retry(exc=exc, countdown=0.3) from exc


@shared_task(name="bug")
def bug(value: Any) -> None:
    record("bug")
    raise TypeError("a bug")


@shared_task(name="leak", bind=True, max_retries=2)
def leak(self: Task, user: str, password: str, options: dict[str, Any] | None = None) -> None:
    try:
        raise RuntimeError(f"login of {user} with {password} refused; token={(options or {}).get('token')}")
    except RuntimeError as exc:
        raise self.retry(exc=exc, countdown=0.3) from exc


@shared_task(name="too_long", bind=True, time_limit=1)
def too_long(self: Task) -> None:
    record(f"too_long {self.request.id}")
    time.sleep(60)


@shared_task(name="reject")
def reject() -> None:
    raise Reject("no use", requeue=False)


@shared_task(name="unserialisable")
def unserialisable() -> object:
    return object()


class Unpicklable(Exception):
    """Its constructor cannot be called with its args."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


@shared_task(name="unpicklable", retry_policy={"automatic": False})  # type: ignore[call-overload,untyped-decorator]
def unpicklable() -> None:
    raise Unpicklable("first", "second")


@shared_task(name="die_once", bind=True)
def die_once(self: Task) -> str:
    """Kills its own process at its first start."""
    from pathlib import Path

    marker = Path(os.environ["TEST_EFFECTS"] + f".died-{self.request.id}")
    record(f"die_once {self.request.id}")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@shared_task(name="fail_until_mended")
def fail_until_mended(payload: Any, mended: str) -> Any:
    """Fails until the file `mended` exists; then records what it was given."""
    import json
    from pathlib import Path

    if not Path(mended).exists():
        raise Permanent("not mended yet")
    record("mended " + json.dumps(payload, default=repr, sort_keys=True))
    return payload


@shared_task(name="echo_types")
def echo_types(payload: Any, mended: str) -> None:
    """As above, recording the Python values as they arrived."""
    from pathlib import Path

    if not Path(mended).exists():
        raise Permanent("not mended yet")
    record(f"arrived {payload!r}")


@shared_task(name="errback")
def errback(request: Any, exc: Any, traceback: Any) -> None:
    record(f"errback {getattr(request, 'id', request)}")


@shared_task(name="add")
def add(values: list[int]) -> int:
    return sum(values)
