"""The table of Celery settings that we enforce: name, value, why, where it applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ENFORCED", "Enforced", "rows_for"]

Predicate = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """One row. `accepts` tells which values of the project's are as good as ours."""

    setting: str
    """Celery's name; "option.key" for a key inside a dict setting."""

    value: Any
    why: str
    code: str = "CH002"
    accepts: Predicate | None = None
    transport: str | None = None
    """Only with this kind of broker: "redis" or "amqp"."""

    since: tuple[int, int] = (0, 0)
    until: tuple[int, int] = (99, 0)
    task_attribute: str | None = None
    """The attribute by which one task can contradict the setting."""

    write: bool = True
    """False: only checked. The setting is deprecated, or its default is right already."""

    def allows(self, value: Any) -> bool:
        """Whether a project may keep `value`."""
        if self.accepts is not None:
            return self.accepts(value)
        return bool(value == self.value)


def _finite(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and not math.isinf(value)
        and value >= 0
    )


def _at_most_five(value: Any) -> bool:
    return _finite(value) and 0 < value <= 5


def _json_only(value: Any) -> bool:
    names = [value] if isinstance(value, str) else list(value or ())
    return bool(names) and all(name in ("json", "application/json") for name in names)


def _json_or_unset(value: Any) -> bool:
    return value is None or _json_only(value)


def _not_false(value: Any) -> bool:
    return value is None or value is True


ENFORCED: tuple[Enforced, ...] = (
    Enforced(
        setting="task_acks_late",
        value=True,
        why="Acknowledged before it runs, a task is lost when its process dies.",
        task_attribute="acks_late",
    ),
    Enforced(
        setting="task_reject_on_worker_lost",
        value=True,
        why="Without it Celery acknowledges the task of a killed child as if it had failed.",
        task_attribute="reject_on_worker_lost",
    ),
    Enforced(
        setting="task_acks_on_failure",
        value=True,
        why="The dead letter is kept before the acknowledgement; a rejected message is dropped by Redis.",
        since=(5, 7),
        task_attribute="acks_on_failure",
    ),
    Enforced(
        setting="task_acks_on_timeout",
        value=True,
        why="Rejected at its time limit, a task is redelivered at once, for ever.",
        since=(5, 7),
        task_attribute="acks_on_timeout",
    ),
    Enforced(
        setting="task_acks_on_failure_or_timeout",
        value=True,
        why="See task_acks_on_failure and task_acks_on_timeout, which take its place in Celery 5.7.",
        until=(5, 7),
        task_attribute="acks_on_failure_or_timeout",
    ),
    Enforced(
        setting="task_acks_on_failure_or_timeout",
        value=True,
        why="Deprecated: its False still turns off both acknowledgements.",
        accepts=_not_false,
        since=(5, 7),
        task_attribute="acks_on_failure_or_timeout",
        write=False,
    ),
    Enforced(
        setting="worker_prefetch_multiplier",
        value=1,
        why="Each prefetched message waits behind a running task and is delayed by a crash of its worker.",
    ),
    Enforced(
        setting="accept_content",
        value=["json"],
        why="A pickle is code: whoever can write to the broker could run it.",
        accepts=_json_only,
    ),
    Enforced(
        setting="result_accept_content",
        value=None,
        why="A pickle is code: whoever can write to the result backend could run it.",
        accepts=_json_or_unset,
        write=False,
    ),
    Enforced(
        setting="task_serializer",
        value="json",
        why="A message in another format is refused by every hardened worker.",
        accepts=_json_only,
        task_attribute="serializer",
    ),
    Enforced(
        setting="result_serializer",
        value="json",
        why="A pickle is code: whoever can write to the result backend could run it.",
        accepts=_json_only,
    ),
    Enforced(
        setting="result_backend_always_retry",
        value=True,
        why="Without it one lost packet to the result backend turns a finished task into an error.",
    ),
    Enforced(
        setting="result_backend_max_retries",
        value=5,
        why="Celery's default is infinite: with a dead result backend every slot blocks for ever.",
        accepts=_finite,
    ),
    Enforced(
        setting="broker_connection_retry",
        value=True,
        why="Without it a worker ends at the first lost connection.",
    ),
    Enforced(
        setting="broker_connection_retry_on_startup",
        value=True,
        why="Without it a worker that starts before its broker ends at once.",
    ),
    Enforced(
        setting="broker_connection_max_retries",
        value=None,
        why="After a finite number of tries the worker ends, and 0 means the first failure is the last.",
    ),
    Enforced(
        setting="broker_channel_error_retry",
        value=True,
        why="Without it a Redis that answers READONLY or OOM for a moment ends the worker.",
        transport="redis",
    ),
    Enforced(
        setting="broker_channel_error_retry",
        value=True,
        why="Without it RabbitMQ's consumer time-out (30 min), which closes the channel, ends the worker.",
        transport="amqp",
    ),
    Enforced(
        setting="broker_transport_options.unacked_restore_interval",
        value=1,
        why="Seconds between looks for what plain workers left in the same Redis, before leases take over.",
        accepts=_at_most_five,
        transport="redis",
    ),
    Enforced(
        setting="broker_transport_options.unacked_restore_throttle",
        value=1,
        why="Such looks skipped between two that count; kombu's default of 10 makes them 100 s apart.",
        accepts=_at_most_five,
        transport="redis",
    ),
    Enforced(
        setting="broker_transport_options.confirm_publish",
        value=True,
        why="Without confirms a retry can be refused by the broker while its old message is acknowledged.",
        transport="amqp",
    ),
)


def rows_for(*, version: tuple[int, int], transport: str) -> tuple[Enforced, ...]:
    """The rows in force with this version of Celery and this kind of broker."""
    return tuple(
        row for row in ENFORCED if row.since <= version < row.until and row.transport in (None, transport)
    )
