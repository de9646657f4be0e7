"""Rules about the errors of Celery itself. Those of kombu are in broker.py."""

from __future__ import annotations

from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    Rule(
        name="celery.time_limit",
        classes=("billiard.exceptions.SoftTimeLimitExceeded", "billiard.exceptions.TimeLimitExceeded"),
        verdict=Kind.PERMANENT,
        why="The same work would take as long again.",
    ),
    Rule(
        name="celery.result",
        classes=(
            "celery.exceptions.TimeoutError",
            "celery.exceptions.BackendStoreError",
            "celery.exceptions.BackendGetMetaError",
        ),
        verdict=Kind.TRANSIENT,
        why="The result backend did not answer, or the result was not there in time.",
    ),
    Rule(
        name="celery.reject",
        classes=("celery.exceptions.Reject",),
        verdict=Kind.PERMANENT,
        why="The task itself rejected its message.",
    ),
    Rule(
        name="celery.configuration",
        classes=(
            "celery.exceptions.NotRegistered",
            "celery.exceptions.AlreadyRegistered",
            "celery.exceptions.ImproperlyConfigured",
            "celery.exceptions.InvalidTaskError",
            "celery.exceptions.QueueNotFound",
            "celery.exceptions.SecurityError",
        ),
        verdict=Kind.PERMANENT,
        why="The task, the queue or the configuration is wrong, which only a change mends.",
    ),
)
