"""The errors of Celery and of Django itself are classified as they are raised."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import (
    BackendStoreError,
    ImproperlyConfigured,
    InvalidTaskError,
    QueueNotFound,
    Reject,
    SoftTimeLimitExceeded,
    TimeLimitExceeded,
)
from celery.exceptions import TimeoutError as ResultTimeout
from django.contrib.auth.models import User
from django.core import exceptions, signing
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, transaction
from django.http import Http404
from django.template import engines
from django.urls import reverse
from django.utils.connection import ConnectionDoesNotExist
from kombu.exceptions import EncodeError

from hardening.classification.current import project_classifier
from hardening.classification.verdict import Kind

P, T, U = Kind.PERMANENT, Kind.TRANSIENT, Kind.UNKNOWN


def judged(exc: BaseException) -> tuple[Kind, str]:
    verdict = project_classifier().judge(exc)
    return verdict.kind, verdict.rule


def said(act: Any) -> tuple[Kind, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (the verdict says which)
        act()
    return judged(caught.value)


def test_a_time_limit_is_permanent_under_its_own_rule() -> None:
    assert judged(SoftTimeLimitExceeded()) == (P, "celery.time_limit")
    assert judged(TimeLimitExceeded(3)) == (P, "celery.time_limit")


def test_a_result_that_does_not_come_is_transient() -> None:
    app = Celery("results", backend="cache+memory://", set_as_current=False)

    assert said(lambda: app.AsyncResult(str(uuid.uuid4())).get(timeout=0.01)) == (T, "celery.result")
    assert judged(ResultTimeout()) == (T, "celery.result")
    assert judged(BackendStoreError("down")) == (T, "celery.result")


def test_what_is_wrong_with_a_message_or_the_configuration_is_permanent() -> None:
    app = Celery("tasks", broker="memory://", set_as_current=False)

    assert said(lambda: app.tasks["no.such.task"]) == (P, "celery.configuration")
    assert judged(QueueNotFound("no-such-queue")) == (P, "celery.configuration")
    assert judged(ImproperlyConfigured("x")) == (P, "celery.configuration")
    assert judged(InvalidTaskError("x")) == (P, "celery.configuration")
    assert judged(Reject("poison")) == (P, "celery.reject")
    with pytest.raises(EncodeError) as caught:
        app.send_task("x", args=[object()])
    assert judged(caught.value)[0] is P


@pytest.mark.django_db
def test_rows_that_are_not_as_expected_are_permanent() -> None:
    User.objects.create(username="one")
    User.objects.create(username="two")

    for act in (lambda: User.objects.get(username="none"), User.objects.get):
        with pytest.raises(Exception) as caught:  # noqa: PT011 (the verdict says which)
            act()
        verdict = project_classifier().judge(caught.value)
        # Weak: whoever asks for a retry by hand waits for the row.
        assert (verdict.kind, verdict.rule, verdict.weak) == (P, "django.object", True)
    assert said(User(username="").full_clean) == (P, "django.validation")
    wrong: Any = {"no_such_field": 1}
    assert said(lambda: User.objects.get(**wrong)) == (P, "django.validation")
    assert said(lambda: User._meta.get_field(*wrong)) == (P, "django.programming")


def test_what_django_refuses_or_finds_misconfigured_is_permanent() -> None:
    template = engines["django"].from_string

    assert said(lambda: signing.loads("forged:value")) == (P, "django.refused")
    assert judged(exceptions.PermissionDenied()) == (P, "django.refused")
    assert judged(exceptions.DisallowedHost()) == (P, "django.refused")
    assert judged(exceptions.ImproperlyConfigured()) == (P, "django.programming")
    assert said(lambda: reverse("no-such-view")) == (P, "django.programming")
    assert said(lambda: template("{% no_such_tag %}")) == (P, "django.programming")
    assert said(lambda: template("{% include 'no-such' %}").render()) == (P, "django.programming")
    assert judged(Http404()) == (P, "django.programming")
    assert judged(ConnectionDoesNotExist()) == (P, "django.programming")


def test_a_database_error_without_a_code_is_judged_by_its_class() -> None:
    assert judged(OperationalError("server closed the connection")) == (T, "django.connection")
    assert judged(InterfaceError("connection already closed")) == (T, "django.connection")
    assert judged(IntegrityError("x")) == (P, "django.data")
    assert judged(DatabaseError("x")) == (U, "none")


def test_a_number_of_mysql_counts_in_djangos_own_error_too() -> None:
    # Django's MySQL backend raises this one itself, without a cause.
    verdict = project_classifier().judge(IntegrityError(4025, "CONSTRAINT failed"))

    assert (verdict.kind, verdict.code) == (P, "4025")


def test_by_name_alone_djangos_database_errors_are_judged_too() -> None:
    classifier = project_classifier()

    assert classifier.judge_name("django.db.utils.IntegrityError").kind is P
    assert classifier.judge_name("django.db.utils.OperationalError").kind is T
    assert classifier.judge_name("django.db.utils.OperationalError", code="1064").kind is P
    assert classifier.judge_name("django.db.utils.OperationalError", code="1049").kind is T
    assert classifier.judge_name("django.db.utils.NotSupportedError", code="0A000").kind is P
    assert classifier.judge_name("psycopg2.errors.DeadlockDetected").kind is U  # Not imported here.


def test_in_a_broken_transaction_the_error_that_broke_it_decides() -> None:
    def broken_by(
        cause: BaseException | None, text: str = "An error occurred in the current transaction."
    ) -> tuple[Kind, str]:
        exc = transaction.TransactionManagementError(text)
        exc.__cause__ = cause
        return judged(exc)

    assert broken_by(OperationalError(1213, "Deadlock found")) == (T, "django.transaction")
    assert broken_by(OperationalError("connection lost")) == (T, "django.transaction")
    assert broken_by(IntegrityError(1062, "Duplicate entry")) == (P, "django.transaction")
    assert broken_by(None) == (U, "django.transaction")
    assert broken_by(None, "This is forbidden when an 'atomic' block is active.") == (P, "django.transaction")
