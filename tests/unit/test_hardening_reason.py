"""The reason code of an error, and the error that an operator wants to see behind Celery's own."""

from __future__ import annotations

import pytest
from celery.exceptions import MaxRetriesExceededError, Reject, SoftTimeLimitExceeded, TimeLimitExceeded

from hardening import Permanent
from hardening.core.reasons import Reason
from hardening.reason import reason_for, underlying
from hardening.retries.sending import RetryUnpublished


def caused(exc: BaseException, cause: BaseException) -> BaseException:
    exc.__cause__ = cause
    return exc


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (ValueError(), Reason.ERROR),
        (Permanent(), Reason.PERMANENT),
        (RetryUnpublished("x", requeue=False), Reason.RETRY_UNPUBLISHED),
        (Reject("x", requeue=False), Reason.REJECTED),
        (MaxRetriesExceededError(), Reason.RETRIES_EXHAUSTED),
        (SoftTimeLimitExceeded(), Reason.TIME_LIMIT),
        (TimeLimitExceeded(), Reason.TIME_LIMIT),
    ],
)
def test_an_error_has_one_reason(exc, reason) -> None:
    assert reason_for(exc) is reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained_to_the_operator(reason) -> None:
    assert reason.explanation.endswith(".")


def test_the_error_behind_celerys_wrapper_is_shown() -> None:
    cause = KeyError("cause")

    assert underlying(caused(MaxRetriesExceededError(), cause)) is cause
    assert underlying(caused(RetryUnpublished("x"), cause)) is cause
    assert underlying(Reject(cause, requeue=False)) is cause


def test_an_error_that_wraps_none_is_shown_itself() -> None:
    for exc in (ValueError(), MaxRetriesExceededError(), Reject("a text"), caused(ValueError(), KeyError())):
        assert underlying(exc) is exc
