"""What is in force for an app: settings, tasks, opt-outs, findings; as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from celery import Celery

from .audit import audit
from .capture import chosen_sink
from .classification.current import project_classifier
from .conf import HardeningSettings, load_settings
from .core.loading import BackendError
from .effective import MISSING, current_value
from .plugin import hardened, policies_of
from .retries.options import is_celerys_own, options_of
from .revoked.store import chosen_revoked
from .store import chosen_store
from .traffic_view import MOST_BUDGETS, OutageState, traffic_view
from .twins.figure import duplicates_of

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
        "grace_seconds": settings.shutdown_rules.grace,
        "lease": asdict(settings.lease_terms) if state.transport == "redis" and not state.reporting else None,
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
                "retries": _retries(app.tasks[policy.name]),
            }
            for policy in policies_of(app)
        ],
        "project_rules": len(project_classifier().books[0].rules),
        "traffic": _traffic(app),
        "duplicates": _duplicates(app, settings),
        "revoked": _revoked(app, settings),
        "findings": [finding.as_dict() for finding in findings],
    }


def _retries(task: Any) -> dict[str, Any]:
    """When and how often the task is tried again, where no rule has a policy of its own."""
    options = options_of(task)
    policy = options.policy(None)
    ours = not is_celerys_own(task)
    return {
        "automatic": options.automatic(task),
        "schedule": policy.describe() if ours else "left to Celery",
        "span_seconds": list(policy.span()) if ours else None,
        "dependency": options.dependency,
        "rules": len(options.book.rules) if options.book else 0,
    }


def _duplicates(app: Celery, settings: HardeningSettings) -> dict[str, Any]:
    """How often tasks succeeded twice, or a copy was not run. `problem` is None where the store answered."""
    try:
        found, problem = duplicates_of(chosen_store(app, settings)), None
    # Nothing may keep the rest from being shown: this is read in the hour when things are broken.
    except Exception as exc:
        found, problem = [], str(exc) or type(exc).__name__
    return {"problem": problem, "tasks": [asdict(each) for each in found]}


def _revoked(app: Celery, settings: HardeningSettings) -> dict[str, Any]:
    """How many revokes are remembered. `problem` is None where their store answered."""
    rules = settings.revoked_rules
    count: int | None = None
    problem = None
    try:
        count = len(chosen_revoked(app).changes().revoked)
    # Nothing may keep the rest from being shown: this is read in the hour when things are broken.
    except Exception as exc:
        problem = str(exc) or type(exc).__name__
    return {"problem": problem, "count": count, "most": rules.most, "expires_seconds": rules.expires}


def _traffic(app: Celery) -> dict[str, Any]:
    """Outages and budgets. `problem` is None where the store answered."""
    found = traffic_view(app)
    return {
        "store": found.store,
        "problem": found.problem or None,
        "now": found.now,
        "outages": [_outage(each) for each in found.outages],
        "runs": [_outage(each) for each in found.runs],
        "budgets": [
            {
                "task": each.task,
                "tokens": each.view.tokens,
                "capacity": each.view.capacity,
                "wait_seconds": each.view.wait,
            }
            for each in found.budgets
        ],
        "most_budgets": MOST_BUDGETS,
        "budgets_not_read": found.not_read,
    }


def _outage(state: OutageState) -> dict[str, Any]:
    view = state.view
    return {
        "dependency": state.dependency,
        "failures": view.failures,
        "tasks": list(view.tasks),
        "open_since": view.open_since,
        "wait_seconds": view.wait,
        "next_probe_at": view.next_probe_at,
        "prober": state.prober,
    }


def _either(of_task: Any, of_pool: Any) -> Any:
    # Celery 5.6 leaves the setting to the pool; 5.7 copies it onto the task.
    return of_pool if of_task is None else of_task


def _plain(value: Any) -> Any:
    if value is MISSING:
        return None
    # JSON has no infinity, which is Celery's default for result_backend_max_retries.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
