"""Tasks that are acknowledged early; imported only by the tests of the opt-out."""

from __future__ import annotations

from celery import shared_task


@shared_task(name="opting_out.silent", acks_late=False)
def silent() -> str:
    return "pong"


@shared_task(name="opting_out.reasoned", early_ack="written on the task itself")  # type: ignore[call-overload,untyped-decorator]
def reasoned() -> str:
    return "pong"
