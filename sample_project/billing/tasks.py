"""Send a receipt by mail; write a statement to the database."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import IntegrityError, OperationalError, connection

from hardening import Permanent
from sample_project.billing.models import Statement
from sample_project.effects import effect

RETRY_SECONDS = 0.5
PERMANENT_SMTP_CODES = range(500, 600)


@shared_task(bind=True, max_retries=2, time_limit=30)
def send_receipt(self: Task[Any, Any], customer: str, order: str, amount: str) -> str:
    """Mail a receipt and return the customer's address.

    - The mailbox does not exist (5xx): Permanent.
    - The server cannot take it now (4xx), or is not there: retried.
    """
    with effect(self):
        mail = EmailMessage(f"Receipt for order {order}", f"You paid {amount} EUR. Thank you.", to=[customer])
        try:
            mail.send()
        except smtplib.SMTPRecipientsRefused as exc:
            code, text = exc.recipients[customer]
            if code in PERMANENT_SMTP_CODES:
                raise Permanent(f"{customer} cannot get mail: {code} {text.decode()}") from exc
            raise self.retry(exc=exc, countdown=RETRY_SECONDS * 2**self.request.retries) from exc
        except OSError as exc:  # Every other error of smtplib and of the network.
            raise self.retry(exc=exc, countdown=RETRY_SECONDS * 2**self.request.retries) from exc
        return customer


@shared_task(
    bind=True,
    autoretry_for=(OperationalError, IntegrityError),
    retry_backoff=1,
    retry_backoff_max=4,
    max_retries=12,
    time_limit=30,
)
def write_statement(self: Task[Any, Any], order: str, account: str, amount: str) -> str:
    """Write the order's statement and return its number.

    Two jobs may want the same number, and somebody else may hold the database: both pass, so both are
    retried. A second run after a crash finds the statement that the first has written.
    """
    with effect(self), _short_lock_wait(seconds=0.2):
        return str(Statement.objects.write(order=order, account=account, amount=Decimal(amount)))


@contextmanager
def _short_lock_wait(*, seconds: float) -> Iterator[None]:
    """Do not block a worker process while the database is locked: a retry is cheaper.

    SQLite only; on PostgreSQL this would be `SET LOCAL lock_timeout`.
    """
    if connection.vendor != "sqlite":
        yield
        return
    usual = settings.DATABASES["default"]["OPTIONS"]["timeout"]
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(usual * 1000)}")
