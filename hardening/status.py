"""What is in force for an app: settings, tasks, opt-outs, findings; as plain data."""

from __future__ import annotations

import math
from typing import Any

from celery import Celery

from .audit import audit
from .capture import chosen_sink
from .conf import load_settings
from .core.loading import BackendError
from .effective import MISSING, current_value
from .plugin import hardened, policies_of

__all__ = ["status_of"]


def status_of(app: Celery) -> dict[str, Any]:
    """Everything that `hardening_status` shows."""
    findings = audit(app)
    state = hardened(app)
    settings, _ = load_settings()
    try:
        sink = chosen_sink(app, settings)
        sink_name = f"{type(sink).__module__}.{type(sink).__qualname__}"
    except BackendError as exc:
        sink_name = f"unusable: {exc}"
    return {
        "app": str(app.main),
        "mode": state.settings.mode,
        "broker": state.transport,
        "sink": sink_name,
        "settings": [
            {
                "name": row.setting,
                "value": _plain(current_value(app, row.setting)),
                "enforced": row.value,
                "set_by": "project"
                if row.setting in state.project
                else "hardening"
                if row.write and not state.reporting
                else "celery",
                "why": row.why,
            }
            for row in state.rows
        ],
        "tasks": [
            {
                "name": policy.name,
                "source": policy.source,
                "acks_late": bool(app.tasks[policy.name].acks_late),
                "reject_on_worker_lost": bool(app.tasks[policy.name].reject_on_worker_lost),
                "time_limit": _either(app.tasks[policy.name].time_limit, app.conf.task_time_limit),
                "soft_time_limit": _either(
                    app.tasks[policy.name].soft_time_limit, app.conf.task_soft_time_limit
                ),
                "max_retries": app.tasks[policy.name].max_retries,
                "opt_out": policy.opt_out,
            }
            for policy in policies_of(app)
        ],
        "findings": [finding.as_dict() for finding in findings],
    }


def _either(of_task: Any, of_pool: Any) -> Any:
    # Celery 5.6 leaves the setting to the pool; 5.7 copies it onto the task.
    return of_pool if of_task is None else of_task


def _plain(value: Any) -> Any:
    if value is MISSING:
        return None
    # JSON has no infinity, which is Celery's default for result_backend_max_retries.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
