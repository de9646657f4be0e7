"""What a project's settings say against leases."""

from __future__ import annotations

from typing import Any

from celery import Celery

from hardening.core.findings import Finding, Level

from .terms import Lease

__all__ = ["CANCEL", "lease_findings"]

CANCEL = "worker_cancel_long_running_tasks_on_connection_loss"


def lease_findings(app: Celery, transport: str, lease: Lease) -> list[Finding]:
    """Nothing where the broker is not Redis: it keeps its own account of what is delivered."""
    if transport != "redis":
        return []
    findings = []
    if not lease.atomic_take:
        findings.append(
            Finding(
                code="CH018",
                level=Level.WARNING,
                what="messages are popped first and leased afterwards: a worker that dies in that round trip "
                "loses its message, and from a Redis that is full each death of a worker takes one more",
                where='settings.HARDENING["LEASE"]["ATOMIC_TAKE"]',
                remedy="Remove it: taking and leasing in one step is the default.",
            )
        )
    if app.conf.worker_cancel_long_running_tasks_on_connection_loss:
        findings.append(
            Finding(
                code="CH018",
                level=Level.WARNING,
                what=f"{CANCEL} is not obeyed: what runs keeps its message over a lost connection",
                where=f"Celery setting {CANCEL} (with your prefix, in Django's settings)",
                remedy="Remove it.",
            )
        )
    options: Any = app.conf.broker_transport_options or {}
    if options.get("ack_emulation") is False:
        findings.append(
            Finding(
                code="CH018",
                level=Level.ERROR,
                what="ack_emulation is False: kombu keeps nothing of a message that it delivered",
                where="Celery setting broker_transport_options (with your prefix, in Django's settings)",
                remedy='Remove "ack_emulation" from it.',
            )
        )
    return findings
