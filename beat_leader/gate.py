"""The gate at Beat's start: exit 78 with a readable list, before anything is sent.

A Beat that cannot lead safely is worse than none: nobody notices it. One whose stores do not answer now does
start: it waits for them, and says so.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.utils.imports import load_extension_class_names, symbol_by_name

from hardening.core.starting import failed_check, report

from .checks import another_scheduler, settings_findings
from .choosing import DEFAULT_SCHEDULER, OURS, is_reporting, on_command_line
from .scheduler import LeaderScheduler
from .standing import standing_findings

__all__ = ["on_beat_init", "on_worker_with_beat"]

logger = logging.getLogger("beat_leader")


def on_beat_init(service: Any) -> None:
    """Receives beat_init: the scheduler is built, and has not ticked.

    A receiver's Exception is swallowed by Celery; SystemExit is not.
    """
    scheduler = type(service.scheduler)
    _open(service.app, scheduler, "Beat")


def on_worker_with_beat(worker: Any) -> None:
    """Receives worker_init of a worker with -B: an embedded Beat that ended would leave its worker running.

    The worker's option has its default from before Django was set up.
    """
    if worker.scheduler == DEFAULT_SCHEDULER and not is_reporting() and not on_command_line():
        worker.scheduler = OURS
    names: Any = load_extension_class_names("celery.beat_schedulers")
    _open(worker.app, symbol_by_name(worker.scheduler, aliases=dict(names)), "worker")


def _open(app: Celery, scheduler: Any, who: str) -> None:
    try:
        findings = settings_findings()
        if issubclass(scheduler, LeaderScheduler):
            findings += standing_findings(app)
        elif not is_reporting():
            findings.append(
                another_scheduler(
                    f"{scheduler.__module__}:{scheduler.__qualname__}",
                    "option -S/--scheduler" if on_command_line() else "Celery setting beat_scheduler",
                )
            )
    except Exception as exc:
        # A Beat of which we do not know whether it is safe does not start.
        logger.exception("the check at Beat's start itself failed")
        findings = [failed_check("the check at Beat's start", "beat_leader.gate", exc)]
    report(findings, reporting=is_reporting(), who=who, promise="what Beat promises")
