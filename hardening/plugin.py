"""harden(app): the only place that changes a Celery app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from celery import Celery, signals
from celery.app.annotations import prepare, resolve_all

from .conf import REPORT, HardeningSettings, load_settings
from .core.every_app import on_every_app, unproxied
from .core.identity import mark_publish
from .effective import project_values, set_value, transport_of, write_value
from .enforced import Enforced, rows_for
from .intake.expiration import keep_expired
from .policy import UNSET, TaskPolicy, explicit_attribute, opt_out_reason, source_of
from .private import celery_version
from .retries.options import ANNOTATED
from .revoked.control import let_control_keep
from .task import is_reached, reach
from .unroutable import refuse_unroutable

__all__ = ["Hardened", "harden", "harden_every_app", "hardened", "policies_of", "unreached"]


@dataclass(slots=True)
class Hardened:
    """What is known of one hardened app. `project` is what the project set before we wrote."""

    settings: HardeningSettings
    rows: tuple[Enforced, ...] = ()
    transport: str = ""
    project: dict[str, Any] = field(default_factory=dict)
    policies: dict[str, TaskPolicy] = field(default_factory=dict)

    @property
    def reporting(self) -> bool:
        """Whether nothing may be changed or stopped."""
        return self.settings.mode == REPORT


_apps: WeakKeyDictionary[Celery, Hardened] = WeakKeyDictionary()


def harden(app: Celery) -> Celery:
    """Enforce the delivery promise on a Celery app and on every task it has or will have.

    Idempotent. It needs no call where "hardening" is in INSTALLED_APPS. In report mode nothing is
    changed. A setting of the project's that contradicts the promise is not overridden: the worker
    refuses to start.
    """
    if app in _apps:
        return app
    settings, _ = load_settings()
    _apps[app] = Hardened(settings=settings)
    # A later config_from_object() builds the settings anew; this handler then writes ours again.
    app.on_after_configure.connect(_on_configured, weak=False)
    if _is_configured(app):
        _configure(app)
    _add_boot_steps(app)
    if not _apps[app].reporting:
        signals.before_task_publish.connect(mark_publish, weak=False, dispatch_uid="hardening.mark_publish")
    return app


def hardened(app: Celery) -> Hardened:
    """What was enforced on this app. Hardens it first where that has not been done."""
    app = unproxied(app)
    harden(app)
    if not _apps[app].rows:
        app.conf.get("task_acks_late")  # The first look at the settings configures the app.
        if not _apps[app].rows:
            _configure(app)
    return _apps[app]


def harden_every_app() -> None:
    """Harden the Celery apps of this process, those that exist and those that come later."""
    on_every_app(harden)


def policies_of(app: Celery) -> tuple[TaskPolicy, ...]:
    """The policy of every task of the app, by name. Finalizes the app."""
    state = hardened(app)
    for name, task in app.tasks.items():
        if name not in state.policies:  # In report mode nothing of ours runs when a task is bound.
            _take_in(app, type(task), task, _project_annotations(app, type(task)))
    return tuple(state.policies[name] for name in sorted(app.tasks))


def unreached(app: Celery) -> tuple[str, ...]:
    """The names of tasks that enforcement did not reach; anything here is our defect."""
    return tuple(sorted(name for name, task in app.tasks.items() if not is_reached(type(task))))


def _on_configured(sender: Celery, **_: Any) -> None:
    if sender in _apps:
        _configure(sender)


def _configure(app: Celery) -> None:
    state = _apps[app]
    transport = transport_of(app)
    rows = rows_for(version=celery_version(), transport=transport)
    state.transport, state.rows = transport, rows
    state.project = project_values(app, rows)
    if not state.reporting:
        for row in rows:
            if row.write and row.setting not in state.project:
                write_value(app, row)
        _annotate(app)
        if transport == "amqp":
            keep_expired()
            refuse_unroutable()
    # Tasks bound before us copied the old settings and were never annotated by us.
    for task in list(_registered(app).values()):
        if type(task).__dict__.get("__bound__"):
            _take_in(app, type(task), task, _project_annotations(app, type(task)))


class _Annotation:
    """Stands first in task_annotations: applies the project's own entries, then ours.

    Celery takes the first annotation that answers, so ours would hide the project's. It therefore
    applies them itself, and answers with nothing left to do.
    """

    def __init__(self, app: Celery, others: list[Any]) -> None:
        self._app = app
        self.others = others

    def annotate(self, task: type[Any]) -> Mapping[str, Any]:
        """Called by Celery with each task class, when it is bound."""
        merged = _merged(self.others, task)
        for name, value in merged.items():
            if name.startswith("@"):
                task.add_around(name[1:], value)
            else:
                setattr(task, name, value)
        _take_in(self._app, task, task, merged)
        return {}

    def annotate_any(self) -> Mapping[str, Any]:
        """Nothing: `annotate` has applied the project's "*" entry already."""
        return {}


def _annotate(app: Celery) -> None:
    present = app.conf.task_annotations
    if not _is_ours(present):
        set_value(app, "task_annotations", [_Annotation(app, list(prepare(present)))])
    app.__dict__.pop("annotations", None)  # A cached property: tasks bound from now on must see ours.


def _is_configured(app: Any) -> bool:
    return bool(app.configured)


def _registered(app: Any) -> Any:
    """The registry as it is now; `app.tasks` would finalize the app, or wait for a thread that does."""
    return app._tasks


def _is_ours(annotations: Any) -> bool:
    return bool(annotations) and isinstance(annotations, list) and isinstance(annotations[0], _Annotation)


def _merged(annotations: list[Any], task: type[Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    entries: Any = resolve_all(annotations, task)
    for entry in entries:
        merged.update(entry)
    return merged


def _project_annotations(app: Celery, task: type[Any]) -> dict[str, Any]:
    present = app.conf.task_annotations
    return _merged(present[0].others if _is_ours(present) else list(prepare(present)), task)


def _take_in(app: Celery, task: type[Any], named: Any, annotated: Mapping[str, Any]) -> None:
    """Decide one task's policy and put it in force on its class."""
    state = _apps[app]
    reason = opt_out_reason(named, state.settings.early_ack)
    contradictions = []
    for row in state.rows:
        attribute = row.task_attribute
        if attribute is None:
            continue
        asked = annotated.get(attribute, explicit_attribute(task, attribute))
        if asked is UNSET or asked is None:
            if not state.reporting and row.setting not in state.project and row.write:
                setattr(task, attribute, row.value)
        elif not row.allows(asked):
            contradictions.append((row, asked))
    if not state.reporting:
        setattr(task, ANNOTATED, dict(annotated))
        if reason:
            task.acks_late = False
            task.reject_on_worker_lost = False
        reach(task)
    state.policies[str(named.name)] = TaskPolicy(
        name=str(named.name),
        source=source_of(named),
        opt_out=reason,
        contradictions=tuple(contradictions),
    )


def _add_boot_steps(app: Celery) -> None:
    if _apps[app].reporting:
        return
    app.steps["consumer"].update(
        {
            "hardening.worker.Upkeep",
            "hardening.revoked.step.Revokes",
            "hardening.shutdown.step.Drainage",
            "hardening.intake.dead_lettered.DeadLettered",
        }
    )
    let_control_keep(app)
