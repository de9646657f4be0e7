"""Celery's private parts around messages that never become a task do as we rely on."""

from __future__ import annotations

from typing import Any

import pytest
from celery import signals
from celery.app.task import Context

from tests.helpers.hardened_apps import EVENTS, no_hardening, plain_app, request_of, send

pytestmark = pytest.mark.usefixtures("isolated", "recording")


@pytest.fixture
def app() -> Any:
    with no_hardening():
        app = plain_app(task_acks_late=True)

        @app.task(name="t", shared=False)  # type: ignore[untyped-decorator]
        def t(*args: Any) -> None: ...

        @app.task(name="errback", shared=False)  # type: ignore[untyped-decorator]
        def errback(request: Any, exc: Any, traceback: Any) -> None:
            EVENTS.append(f"errback {request.id} {exc}")

        app.finalize()
    return app


def test_an_announced_expiry_is_stored_acknowledged_and_told_and_no_id_is_revoked(app) -> None:
    told: list[bool] = []

    def receive(expired: bool, **_: Any) -> None:
        told.append(expired)

    signals.task_revoked.connect(receive, weak=False)
    request = request_of(app, send(app.tasks["t"]))
    try:
        request._announce_revoked("expired", False, None, True)
    finally:
        signals.task_revoked.disconnect(receive)

    assert EVENTS == ["backend REVOKED"]
    assert (told, request.answers.given, request.revoked()) == ([True], ["ack"], True)
    assert not request_of(app, request.message).revoked(), "another one of this id is not"


def test_errbacks_are_called_for_a_request_that_was_never_made_by_celery(app) -> None:
    context = Context(id="id", errbacks=[dict(app.tasks["errback"].s())], delivery_info={})

    app.backend._call_task_errbacks(context, ValueError("no"), None)

    assert EVENTS == ["errback id no"]
