"""What revokes that outlive workers rely on in Celery; a change fails here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from celery.app.control import Control
from celery.result import AsyncResult
from celery.utils.collections import LimitedSet
from celery.worker import control, loops, pidbox, state

from hardening.revoked.rules import COMMANDS
from tests.helpers.hardened_apps import make_app, no_hardening, request_of, run, send

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture(autouse=True)
def nothing_revoked() -> Iterator[None]:
    yield
    state.revoked.clear()
    state.revoked_stamps.clear()


@pytest.fixture
def plain() -> Iterator[Any]:
    with no_hardening():
        yield make_app()


def task_of(app: Any) -> Any:
    def t() -> None: ...

    app.task(name="t", shared=False, acks_late=True)(t)

    app.finalize()
    return app.tasks["t"]


def test_a_request_whose_id_is_in_the_set_does_not_run(plain) -> None:
    task = task_of(plain)
    request = request_of(plain, send(task))
    state.revoked.add(request.id)

    assert request.revoked()
    assert request.answers.given == ["ack"]
    assert task.AsyncResult(request.id).state == "REVOKED"


def test_a_request_whose_stamp_is_in_the_lists_does_not_run(plain) -> None:
    task = task_of(plain)
    one = request_of(plain, send(task, stamped_headers=["h"], h=["x"]))
    other = request_of(plain, send(task, stamped_headers=["h"], h=["y"]))
    stamps: Any = state.revoked_stamps
    stamps["h"] = ["x"]

    assert one.revoked()
    assert not other.revoked()
    assert run(other) == ["ack"]


def test_the_set_takes_new_bounds_while_it_is_in_use() -> None:
    ids: Any = LimitedSet(maxlen=2, expires=0.001)
    ids.maxlen, ids.expires = 1000, 3600

    for number in range(500):
        ids.add(str(number))
        ids.purge()

    assert len(ids) == 500
    ids.discard("7")
    assert "7" not in ids


@pytest.mark.parametrize(
    "how",
    [
        lambda app: app.control.revoke("a"),
        lambda app: app.control.terminate("a"),
        lambda app: app.control.revoke_by_stamped_headers({"h": "x"}),
        lambda app: AsyncResult("a", app=app).revoke(terminate=True),
    ],
)
def test_each_way_to_revoke_goes_through_broadcast(plain, how) -> None:
    told: list[Any] = []

    class Told(Control):
        def broadcast(self, command: Any, *args: Any, **kwargs: Any) -> Any:
            told.append((command, kwargs["arguments"]))

    plain.control_cls = Told
    how(plain)

    ((command, arguments),) = told
    assert command in COMMANDS
    assert {"task_id", "headers"} & set(arguments)


def test_workers_look_up_commands_when_they_come(plain) -> None:
    assert "handlers=control.Panel.data" in inspect.getsource(pidbox.Pidbox)
    assert set(COMMANDS) <= set(control.Panel.data)


def test_no_message_is_taken_before_the_loop_which_starts_last() -> None:
    assert "consumer.consume()" in inspect.getsource(loops.asynloop)
    assert "consumer.consume()" in inspect.getsource(loops.synloop)
