"""What the project's queues on RabbitMQ would drop unseen: quorum queues without a dead-letter exchange.

Only what the project declares can be read here. A policy of the broker may give a queue both, and AMQP tells
nothing of policies: hence warnings, and no errors.
"""

from __future__ import annotations

import math
from typing import Any

from celery import Celery

from .core.findings import Finding, Level
from .queues import DEAD_LETTER_EXCHANGE

__all__ = ["queue_findings"]

CODE = "CH024"
_POLICY = (
    f'rabbitmqctl set_policy --apply-to queues hardening "^{{name}}$" '
    f'\'{{{{"dead-letter-exchange": "{DEAD_LETTER_EXCHANGE}"}}}}\''
)


def queue_findings(app: Celery, transport: str, poison_limit: float) -> list[Finding]:
    """Nothing where the broker is not RabbitMQ, or no quorum queue is declared."""
    if transport != "amqp":
        return []
    queues: Any = app.amqp.queues
    findings = []
    for name in sorted(queues):
        arguments = queues[name].queue_arguments or {}
        if arguments.get("x-queue-type") == "quorum":
            findings += _of_quorum(name, arguments, poison_limit)
    return findings


def _of_quorum(name: str, arguments: Any, poison_limit: float) -> list[Finding]:
    findings = []
    if not arguments.get("x-dead-letter-exchange"):
        findings.append(
            _warning(
                name,
                f"the quorum queue {name!r} is declared without a dead-letter exchange: the broker drops "
                "what it gives up, at RabbitMQ 4's delivery limit of 20 for instance, and nobody hears of it",
                "Declare it with hardening.queues.durable_queue. If it exists already, its arguments cannot "
                f"be changed, and a policy does the same: {_POLICY.format(name=name)}. Policies cannot be "
                "seen from here: silence this if there is one.",
            )
        )
    limit = arguments.get("x-delivery-limit")
    if isinstance(limit, int) and 0 <= limit <= poison_limit < math.inf:
        findings.append(
            _warning(
                name,
                f"the quorum queue {name!r} has the delivery limit {limit}, and a task is poison after "
                f"{poison_limit:g} deaths: the broker gives it up first, and counts planned restarts as well",
                f"Set its x-delivery-limit well above {poison_limit:g}, 20 for instance, or lower "
                'HARDENING["POISON"]["LIMIT"]. A policy that sets it lower still cannot be seen from here.',
            )
        )
    return findings


def _warning(name: str, what: str, remedy: str) -> Finding:
    return Finding(
        code=CODE,
        level=Level.WARNING,
        what=what,
        where=f"queue {name}, in task_queues, task_default_queue_type or task_create_missing_queue_type",
        remedy=remedy,
    )
