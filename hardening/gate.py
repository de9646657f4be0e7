"""The gate at a worker's start: exit 78 with a readable list, before any message is taken."""

from __future__ import annotations

import logging
import os
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from celery import Celery

from .audit import PREFETCH, audit, audit_prefetch
from .core.findings import Finding, Level
from .core.starting import EX_CONFIG, failed_check, given_by_user, report
from .effective import MISSING, current_value, set_value, write_value
from .leases.consumer import hardened_consumer
from .leases.findings import CANCEL
from .plugin import hardened
from .pool_findings import pool_findings
from .saturation import (
    MAX_CONNECTIONS,
    connections_row,
    green_prefetch,
    highest_concurrency,
    wait_without_stopping,
)

__all__ = ["EX_CONFIG", "on_worker_init", "report"]

logger = logging.getLogger("hardening")

_GREEN_STEPS = ("hardening.saturation.UnhurriedReads", "hardening.saturation.AcksAtOnce")

_LEASE_STEPS = (
    "hardening.leases.step.Leases",
    "hardening.leases.step.LeaseUpkeep",
    "hardening.leases.durability.Durability",
)

_written: WeakKeyDictionary[Celery, int] = WeakKeyDictionary()
"""The limits that we wrote: a second worker of this process shall not take one for the project's."""


def on_worker_init(sender: Any, **_: Any) -> None:
    """Receives worker_init: the pool and the queues are chosen, nothing has been forked or consumed.

    A receiver's Exception is swallowed by Celery; SystemExit is not.
    """
    app: Celery = sender.app
    try:
        findings = audit(app, pool_is_known=True)
        findings += pool_findings(app, _pool_name(sender.pool_cls))
        findings += _prefetch(app, sender)
        findings += _saturate(app, sender)
        _lease(app, sender)
    except Exception as exc:
        # A worker of which we do not know whether it is safe does not start.
        logger.exception("the start-up audit itself failed")
        findings = [failed_check("the start-up audit", "hardening.audit", exc)]
    report(findings, reporting=hardened(app).reporting)


def _prefetch(app: Celery, worker: Any) -> list[Finding]:
    state = hardened(app)
    green = _is_green(worker.pool_cls)
    project = state.project.get(PREFETCH, MISSING)
    if project is MISSING and not given_by_user("prefetch_multiplier"):
        if not state.reporting:
            worker.prefetch_multiplier = green_prefetch(state.transport) if green else 1
        return []
    return audit_prefetch(
        project=project,
        in_force=worker.prefetch_multiplier,
        green=green,
        pool=_pool_name(worker.pool_cls),
        transport=state.transport,
    )


def _saturate(app: Celery, worker: Any) -> list[Finding]:
    """On a green pool: boot steps that keep it busy, and enough connections to Redis."""
    state = hardened(app)
    if not _is_green(worker.pool_cls):
        return []
    if not state.reporting:
        app.steps["consumer"].update(_GREEN_STEPS)
        wait_without_stopping()
    if state.transport != "redis":
        return []
    row = connections_row(highest_concurrency(worker))
    present = current_value(app, MAX_CONNECTIONS)
    if present is MISSING or present == _written.get(app, MISSING):
        if not state.reporting:
            write_value(app, row)
            _written[app] = row.value
        return []
    if row.allows(present):
        return []
    return [
        Finding(
            code=row.code,
            level=Level.ERROR,
            what=f"{row.setting} is {present!r}, at least {row.value!r} are needed. {row.why}",
            where="Celery setting broker_transport_options (with your prefix, in Django's settings)",
            remedy=f'Remove "max_connections" from it, set at least {row.value!r}, or lower --concurrency.',
        )
    ]


def _lease(app: Celery, worker: Any) -> None:
    """The worker's consumer is ours, with the project's or Celery's behind it; on Redis it leases."""
    state = hardened(app)
    if state.reporting:
        return
    leased = state.transport == "redis"
    worker.consumer_cls = hardened_consumer(
        worker.consumer_cls,
        lease=state.settings.lease_terms,
        holder=f"{worker.hostname}:{os.getpid()}:{uuid4().hex[:8]}",
        leased=leased,
    )
    if leased:
        app.steps["consumer"].update(_LEASE_STEPS)
        # What runs keeps its message over a lost connection: to cancel it would strand the message.
        set_value(app, CANCEL, False)


def _is_green(pool: Any) -> bool:
    return any(name in _pool_name(pool) for name in ("gevent", "eventlet"))


def _pool_name(pool: Any) -> str:
    """ "prefork", "gevent", ...: the pool is a class from the command line, else Celery's name for it."""
    if isinstance(pool, str):
        return pool.lower().rpartition(".")[2].partition(":")[0]
    return str(getattr(pool, "__module__", pool)).rpartition(".")[2]
