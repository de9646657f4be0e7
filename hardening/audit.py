"""What contradicts the promise in an app's settings and tasks: findings, nothing changed."""

from __future__ import annotations

from typing import Any

from celery import Celery

from .alerts.channel import channel_findings
from .capture import chosen_sink
from .conf import HardeningSettings, load_settings
from .core.findings import Finding, Level
from .core.loading import BackendError
from .core.sink import offered_sink
from .delayed.store import chosen_delayed_store
from .effective import MISSING, current_value
from .enforced import Enforced
from .leases.findings import lease_findings
from .plugin import Hardened, hardened, policies_of, unreached
from .poison.elsewhere import nowhere_findings
from .poison.terms import task_terms
from .policy import TaskPolicy
from .private import version_findings
from .queue_findings import queue_findings
from .retries.options import is_celerys_own, options_of
from .saturation import green_prefetch
from .store import chosen_store

__all__ = ["audit", "audit_prefetch"]

PREFETCH = "worker_prefetch_multiplier"


def audit(app: Celery, *, pool_is_known: bool = False) -> list[Finding]:
    """Every finding about this app that needs no running worker.

    `pool_is_known`: the caller is a worker, and judges the prefetch multiplier by `audit_prefetch`.
    """
    settings, findings = load_settings()
    findings += version_findings()
    state = hardened(app)
    tasks = app.tasks  # Finalizes: every task is bound and decided upon after this line.
    for row in state.rows:
        if not (pool_is_known and row.setting == PREFETCH):
            findings += _setting_findings(app, state, row)
    for policy in policies_of(app):
        findings += _task_findings(policy, tasks[policy.name], state)
        # A retry option that cannot be read would leave the task with a policy that nobody chose.
        findings += options_of(tasks[policy.name]).findings
        findings += task_terms(tasks[policy.name], settings.poison_terms)[1]
    if not state.reporting:
        findings += [_unreached(name) for name in unreached(app)]
    if app.conf.task_time_limit is None and app.conf.task_soft_time_limit is None:
        # Celery 5.6 puts these on the pool, not on the tasks.
        findings += _limit_findings(tasks)
    findings += _sink_findings(app, settings)
    findings += _store_findings(app, settings)
    findings += channel_findings(settings.alert_rules)
    findings += lease_findings(app, state.transport, settings.lease_terms)
    findings += queue_findings(app, state.transport, settings.poison_terms.limit)
    findings += nowhere_findings(app, settings.poison_terms)
    return findings


def _setting_findings(app: Celery, state: Hardened, row: Enforced) -> list[Finding]:
    asked = state.project.get(row.setting, MISSING)
    if asked is MISSING and row.write and not state.reporting:
        # We wrote it; whoever changed it afterwards contradicts it as well.
        now = current_value(app, row.setting)
        if now is MISSING or not row.allows(now):
            return [_contradiction(row, now)]
    if asked is MISSING or row.allows(asked):
        return []
    if row.setting == PREFETCH and asked == green_prefetch(state.transport):
        return []  # Right on gevent: only a worker knows its pool.
    return [_contradiction(row, asked)]


def _contradiction(row: Enforced, asked: Any) -> Finding:
    return Finding(
        code=row.code,
        level=Level.ERROR,
        what=f"{row.setting} is {asked!r}, enforced is {row.value!r}. {row.why}",
        where=f"Celery setting {row.setting} (with your prefix, in Django's settings)",
        remedy=f"Remove the setting, or set it to {row.value!r}.",
    )


def _task_findings(policy: TaskPolicy, task: Any, state: Hardened) -> list[Finding]:
    if policy.opt_out:
        return []
    findings = []
    for row, asked in (*policy.contradictions, *_changed_later(policy, task, state)):
        if row.task_attribute in ("acks_late", "reject_on_worker_lost"):
            remedy = (
                f"Remove {row.task_attribute}={asked!r}, or say why losing this task is acceptable: "
                f'early_ack="..." on the task, or HARDENING["EARLY_ACK"] = {{"{policy.name}": "..."}}.'
            )
        else:
            remedy = f"Remove {row.task_attribute}={asked!r} from the task."
        findings.append(
            Finding(
                code="CH003",
                level=Level.ERROR,
                what=f"task {policy.name} has {row.task_attribute}={asked!r} without a reason. {row.why}",
                where=f"task {policy.name}, {policy.source}",
                remedy=remedy,
            )
        )
    return findings


def _changed_later(policy: TaskPolicy, task: Any, state: Hardened) -> list[tuple[Enforced, Any]]:
    """What is in force in spite of us: set on the instance, or on the class after it was bound."""
    if state.reporting:
        return []
    said = {row.setting for row, _ in policy.contradictions} | state.project.keys()
    return [
        (row, value)
        for row in state.rows
        if row.task_attribute is not None
        and row.setting not in said
        and not row.allows(value := getattr(task, row.task_attribute, None))
    ]


def _unreached(name: str) -> Finding:
    return Finding(
        code="CH005",
        level=Level.ERROR,
        what=f"task {name} was not reached by enforcement",
        where=f"task {name}",
        remedy="Call hardening.harden(app) before the task is registered, and report this as a defect.",
    )


def _limit_findings(tasks: Any) -> list[Finding]:
    names = sorted(
        name
        for name, task in tasks.items()
        if not is_celerys_own(task) and task.time_limit is None and task.soft_time_limit is None
    )
    if not names:
        return []
    return [
        Finding(
            code="CH006",
            level=Level.WARNING,
            what=f"{len(names)} task(s) have no time limit and may hang for ever: {', '.join(names)}",
            where="time_limit and soft_time_limit of these tasks, task_time_limit in the settings",
            remedy="Give each task a time_limit that fits it. No limit is imposed for you.",
        )
    ]


def _sink_findings(app: Celery, settings: HardeningSettings) -> list[Finding]:
    try:
        chosen_sink(app, settings)
    except BackendError as exc:
        return [
            Finding(
                code="CH007",
                level=Level.ERROR,
                what=f"the dead-letter sink cannot be used: {exc}",
                where='settings.HARDENING["DEAD_LETTER_SINK"]',
                remedy='Name a class that keeps letters, e.g. {"BACKEND": "dlq.sink.DatabaseSink"}.',
            )
        ]
    if settings.dead_letter_sink or offered_sink():
        return []
    return [
        Finding(
            code="CH008",
            level=Level.WARNING,
            what=f"dead letters stay on the broker, in the queue {settings.dead_letter_queue!r}",
            where="settings.INSTALLED_APPS",
            remedy='Add "dlq" to INSTALLED_APPS, to see them in the admin and replay them.',
        )
    ]


def _store_findings(app: Celery, settings: HardeningSettings) -> list[Finding]:
    try:
        chosen_store(app, settings)
    except BackendError as exc:
        return [
            Finding(
                code="CH015",
                level=Level.ERROR,
                what=f"the store of shared state cannot be used: {exc}",
                where='settings.HARDENING["STORE"]',
                remedy='Name one, as in {"BACKEND": "hardening.stores.redis.RedisStore"}, or remove the key.',
            )
        ]
    try:
        chosen_delayed_store(app, settings.delayed_rules)
    except BackendError as exc:
        return [
            Finding(
                code="CH015",
                level=Level.ERROR,
                what=f"the store of delayed tasks cannot be used: {exc}",
                where='settings.HARDENING["DELAYED"]["STORE"]',
                remedy="Name a class of hardening.delayed.stores, or remove the key.",
            )
        ]
    return []


def audit_prefetch(
    *, project: Any, in_force: int, green: bool, pool: str, transport: str = ""
) -> list[Finding]:
    """The prefetch multiplier of a worker that is about to start.

    `project` is the project's own setting, or MISSING; `in_force` what the worker would use, its
    command line included.
    """
    right = green_prefetch(transport) if green else 1
    if in_force == right:
        return []
    if green and in_force == 1:
        return [
            Finding(
                code="CH009",
                level=Level.WARNING,
                what=f"a prefetch multiplier of 1 starves the {pool} pool",
                where=f"{PREFETCH} or --prefetch-multiplier",
                remedy=f"Remove it: {right} is used on {pool} then.",
            )
        ]
    where = PREFETCH if project is not MISSING else "--prefetch-multiplier"
    return [
        Finding(
            code="CH002",
            level=Level.ERROR,
            what=f"{PREFETCH} is {in_force!r}, enforced is {right!r} on {pool}. Prefetched messages wait "
            "behind a running task and are delayed by a crash of its worker.",
            where=where,
            remedy=f"Remove it, or set it to {right}.",
        )
    ]
