"""Send a receipt by mail; write a statement to the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection

from sample_project.billing.models import Statement
from sample_project.effects import effect


@shared_task(bind=True, time_limit=30)
def send_receipt(self: Task[Any, Any], customer: str, order: str, amount: str) -> str:
    """Mail a receipt and return the customer's address.

    The code of the mail server decides on an error: 4xx may pass, 5xx will not.
    """
    with effect(self):
        mail = EmailMessage(f"Receipt for order {order}", f"You paid {amount} EUR. Thank you.", to=[customer])
        mail.send()
        return customer


@shared_task(
    bind=True,
    base=Task,  # For type checkers: the stubs of Celery know options like the next ones only beside a base.
    time_limit=30,
    # A broken constraint is permanent as a rule. Here another job took the number: the next try gets another.
    classify={
        "django.db.utils.IntegrityError": {
            "codes": {"SQLITE_CONSTRAINT_UNIQUE": "transient", "23505": "transient"},
            "why": "Two jobs wanted the same number.",
        },
    },
    retry_policy={"base": "1 s", "cap": "4 s", "max_attempts": 13},
)
def write_statement(self: Task[Any, Any], order: str, account: str, amount: str) -> str:
    """Write the order's statement and return its number.

    Two jobs may want the same number, and somebody else may hold the database: both pass. A second run after
    a crash finds the statement that the first has written.
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
