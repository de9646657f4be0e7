"""Tasks in a Django project: DjangoTask, transactions, the database sink, under the guard."""

from __future__ import annotations

import pytest
from celery.contrib.django.task import DjangoTask
from django.contrib.auth.models import User
from django.db import transaction

from dlq.models import DeadLetter
from hardening import Permanent
from hardening.task import is_reached
from tests.helpers.hardened_apps import fetch, hardened_app, process, request_of, run, waiting

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture
def app():
    return hardened_app()


@pytest.mark.django_db
def test_delay_on_commit_sends_after_the_commit_and_not_before(
    app, django_capture_on_commit_callbacks
) -> None:
    @app.task(name="t", shared=False)
    def t(value): ...

    app.finalize()
    task = app.tasks["t"]
    assert isinstance(task, DjangoTask)
    assert is_reached(type(task))

    with django_capture_on_commit_callbacks(execute=True):
        task.delay_on_commit(1)
        task.apply_async_on_commit((2,), headers={"tenant": "t"})
        assert waiting(app) == 0

    assert waiting(app) == 2


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_transaction_sends_nothing(app) -> None:
    @app.task(name="t", shared=False)
    def t(value): ...

    app.finalize()

    with pytest.raises(ValueError, match="back"), transaction.atomic():
        app.tasks["t"].delay_on_commit(1)
        raise ValueError("back")

    assert waiting(app) == 0


@pytest.mark.django_db(transaction=True)
def test_an_atomic_body_that_fails_is_rolled_back_and_its_letter_is_not(app) -> None:
    @app.task(name="atomic", shared=False)
    @transaction.atomic
    def atomic(name):
        User.objects.create(username=name)
        raise Permanent("after the write")

    request = process(atomic, "ann")

    assert request.answers.given == ["ack"]
    assert not User.objects.exists()
    letter = DeadLetter.objects.get()
    assert letter.task_name == "atomic"


@pytest.mark.django_db(transaction=True)
def test_an_atomic_body_that_succeeds_is_committed(app) -> None:
    @app.task(name="atomic", shared=False)
    @transaction.atomic
    def atomic(name):
        User.objects.create(username=name)
        assert transaction.get_connection().in_atomic_block

    process(atomic, "ann")

    assert User.objects.get().username == "ann"
    assert not DeadLetter.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_task_that_is_retried_and_fails_for_good_is_one_letter_with_all_its_attempts(app) -> None:
    @app.task(name="thrice", bind=True, max_retries=2, shared=False)
    def thrice(self):
        raise self.retry(exc=ValueError(f"try {self.request.retries + 1}"), countdown=0)

    process(thrice)
    while (message := fetch(app)) is not None:
        run(request_of(app, message))

    letter = DeadLetter.objects.get()
    assert letter.reason == "retries_exhausted"
    assert [attempt.number for attempt in letter.attempts.order_by("number")] == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_a_failure_seen_only_by_the_parent_is_in_the_database_and_leaves_no_connection_open(app) -> None:
    from django.db import connection

    @app.task(name="slow", shared=False)
    def slow(): ...

    slow.delay()
    request = request_of(app, fetch(app))

    request.on_timeout(soft=False, timeout=1)

    assert request.answers.given == ["ack"]
    assert connection.vendor == "sqlite" or connection.connection is None
    assert DeadLetter.objects.get().reason == "time_limit"
