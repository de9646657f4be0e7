"""What one task says of errors and retries, resolved once: its rules, its policy, its dependency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.core.signals import setting_changed

from hardening.classification.classifier import RuleBook, class_name
from hardening.classification.current import project_classifier
from hardening.classification.project import task_rules
from hardening.classification.rule import Rule
from hardening.classification.verdict import Kind
from hardening.conf import load_settings
from hardening.core.findings import Finding, Level
from hardening.policy import source_of

from .policy import RetryPolicy, merged
from .resolve import autoretry, classes_of, task_layer

__all__ = ["ANNOTATED", "TaskOptions", "is_celerys_own", "options_of", "rules_name_dependencies"]

ANNOTATED = "_hardening_annotated"
"""Where enforcement leaves what the project's task_annotations said of a task class."""

_RESOLVED = "_hardening_retries"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """A task's own part. `broad`: its autoretry_for takes any Exception. `names_dependencies`: the task or
    one of its rules has a dependency tag. `ends`: errors that its author wants no retry for, or expects.
    `findings`: what cannot be used."""

    book: RuleBook | None
    layer: RetryPolicy
    dependency: str | None
    ends: tuple[type[BaseException], ...]
    broad: bool
    names_dependencies: bool
    findings: tuple[Finding, ...]

    def policy(self, rule: RetryPolicy | None) -> RetryPolicy:
        """The complete policy for an error whose rule brings a policy of its own, or none."""
        return merged(rule=rule, task=self.layer, project=_project_layer())

    @property
    def limits_attempts(self) -> bool:
        """Whether the task's author said how often."""
        return self.layer.limit is not None

    def automatic(self, task: Any, exc: BaseException | None = None) -> bool:
        """Whether the task is tried again without being asked, after this error. Not where it is
        acknowledged early: such a task is rather lost than run twice."""
        if exc is not None and isinstance(exc, self.ends):
            return False
        return bool(task.acks_late) and not is_celerys_own(task) and self.policy(None).automatic is not False


def options_of(task: Any) -> TaskOptions:
    """The options of a task, class or instance. Never raises."""
    cls = task if isinstance(task, type) else task.__class__  # Of the task itself, behind a proxy too.
    found: TaskOptions | None = cls.__dict__.get(_RESOLVED)
    if found is None:
        real = getattr(task, "_get_current_object", None)
        found = _resolve(real() if real is not None else task, cls)
        setattr(cls, _RESOLVED, found)
    return found


def is_celerys_own(task: Any) -> bool:
    """Whether Celery registered the task itself. Some poll by retrying themselves, as chord_unlock does:
    a policy for failures is none for them."""
    return str(task.name).startswith("celery.")


def rules_name_dependencies() -> bool:
    """Whether a rule of the project has a dependency tag."""
    return _tagged()


def _resolve(task: Any, cls: type[Any]) -> TaskOptions:
    rules, findings = task_rules(task)
    layer, more = task_layer(task, cls.__dict__.get(ANNOTATED))
    wanted, excluded, broad = autoretry(task)
    dependency = getattr(task, "dependency", None)
    findings += more
    findings += [_overruled(task, each, rule) for each in wanted if (rule := _permanent_by(each, rules))]
    if dependency is not None and not isinstance(dependency, str):
        findings.append(
            Finding(
                code="CH014",
                level=Level.ERROR,
                what=f"task {task.name} has dependency={dependency!r}, which is not a text",
                where=f"task {task.name}, {source_of(task)}",
                remedy='Give the name of what it depends on, such as "stripe", or remove it.',
            )
        )
        dependency = None
    return TaskOptions(
        book=RuleBook(rules) if rules else None,
        layer=layer,
        dependency=dependency or None,
        ends=(*excluded, *classes_of(getattr(task, "throws", ()))),
        broad=broad,
        names_dependencies=bool(dependency or any(rule.dependency for rule in rules)),
        findings=tuple(findings),
    )


def _permanent_by(error: type[BaseException], own: tuple[Rule, ...]) -> str | None:
    """The rule that takes every error of this class for permanent, whatever code it carries."""
    verdict = project_classifier().judge_name(class_name(error), own=RuleBook(own))
    return verdict.rule if verdict.kind is Kind.PERMANENT else None


def _overruled(task: Any, error: type[BaseException], rule: str) -> Finding:
    name = class_name(error)
    return Finding(
        code="CH016",
        level=Level.WARNING,
        what=f"task {task.name} has autoretry_for {name}, which the rule {rule} takes for permanent: "
        "it is kept as a dead letter at its first attempt",
        where=f"task {task.name}, {source_of(task)}",
        remedy=f'Where another try can help, give the task classify={{"{name}": "transient"}}; '
        f"else remove {name} from autoretry_for.",
    )


@lru_cache(maxsize=1)
def _project_layer() -> RetryPolicy:
    return load_settings()[0].retry_layer


@lru_cache(maxsize=1)
def _tagged() -> bool:
    return any(rule.dependency for book in project_classifier().books for rule in book.rules)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "HARDENING":
        _project_layer.cache_clear()
        _tagged.cache_clear()


setting_changed.connect(_forget, dispatch_uid="hardening.retries.options")
