"""Which retry policy the project and a task give, from our options and Celery's; bad ones are findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hardening.core.findings import Finding, Level
from hardening.policy import UNSET, explicit_attribute, source_of

from .budget import Budget
from .durations import seconds_of
from .outage import Outage
from .policy import RetryPolicy
from .reading import Problem, Reader, count_of, positive_seconds_of, read_options, share_of

__all__ = ["autoretry", "budget_of", "classes_of", "outage_of", "project_layer", "section_of", "task_layer"]

CODE = "CH014"

T = TypeVar("T")


def project_layer(raw: Mapping[str, Any]) -> tuple[RetryPolicy, list[Finding]]:
    """The project's policy, from HARDENING["RETRY"], and what is wrong with it."""
    policy, problems = RetryPolicy.read(raw)
    return policy, _setting_findings("RETRY", problems)


def outage_of(raw: Mapping[str, Any]) -> tuple[Outage, list[Finding]]:
    """The rules of outage mode, from HARDENING["OUTAGE"], and what is wrong with them."""
    readers: dict[str, Reader] = {
        "failures": count_of,
        "first_wait": positive_seconds_of,
        "longest_wait": positive_seconds_of,
        "probe_lease": positive_seconds_of,
    }
    return section_of(Outage, "OUTAGE", raw, readers)


def budget_of(raw: Mapping[str, Any]) -> tuple[Budget, list[Finding]]:
    """The retry budget of each task, from HARDENING["RETRY_BUDGET"], and what is wrong with it."""
    return section_of(Budget, "RETRY_BUDGET", raw, {"share": share_of, "per_second": _rate_of})


def task_layer(task: Any, annotated: Mapping[str, Any] | None = None) -> tuple[RetryPolicy, list[Finding]]:
    """The policy that a task (class or instance) gives, and what of it cannot be used.

    `annotated` is what the project's task_annotations say of it. Our `retry_policy` goes before
    Celery's own options, which count only where somebody wrote them: Celery's defaults are not the
    author's wish. Never raises.
    """
    policy, problems = _celery_layer(task, annotated or {})
    findings = [_task_finding(task, problem, Level.WARNING) for problem in problems]
    own = _asked(task, "retry_policy", annotated or {})
    if own is UNSET or own is None:
        return policy, findings
    ours, problems = RetryPolicy.read(own)
    findings += [
        _task_finding(task, Problem(_path("retry_policy", problem.key), problem.what), Level.ERROR)
        for problem in problems
    ]
    return ours.over(policy), findings


def autoretry(
    task: Any,
) -> tuple[tuple[type[BaseException], ...], tuple[type[BaseException], ...], bool]:
    """The classes of `autoretry_for`, those of `dont_autoretry_for`, and whether the first are broad.

    Broad is Exception or BaseException: such a task asks for a retry of every defect as well.
    """
    wanted = classes_of(getattr(task, "autoretry_for", ()))
    excluded = classes_of(getattr(task, "dont_autoretry_for", ()))
    return wanted, excluded, Exception in wanted or BaseException in wanted


def _celery_layer(task: Any, annotated: Mapping[str, Any]) -> tuple[RetryPolicy, list[Problem]]:
    readers: dict[str, Reader] = {
        "max_retries": _attempts_of,
        "default_retry_delay": seconds_of,
        "retry_backoff": _base_of,
        "retry_backoff_max": seconds_of,
        "retry_jitter": _truth_of,
        "retry_kwargs": _dict_of,
    }
    values, problems = read_options(
        {name: _or_none(_asked(task, name, annotated)) for name in readers}, readers
    )
    # Celery reads None here as "for ever", and there as "the default".
    limit = math.inf if _asked(task, "max_retries", annotated) is None else values.get("max_retries")
    kwargs, wrong = _kwargs(values.get("retry_kwargs", {}))
    problems += wrong
    constant = kwargs.get("countdown", values.get("default_retry_delay"))
    base = values.get("retry_backoff")
    limits = {"max_attempts": kwargs.get("max_retries", limit)}
    if not base and constant is not None:
        return RetryPolicy(base=constant, cap=constant, floor=constant, jitter=False, **limits), problems
    return (
        RetryPolicy(
            base=base or None,
            cap=values.get("retry_backoff_max"),
            jitter=values.get("retry_jitter"),
            **limits,
        ),
        problems,
    )


def _kwargs(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """What of retry_kwargs is about us; the rest are options of the message."""
    readers: dict[str, Reader] = {"max_retries": _attempts_of, "countdown": seconds_of}
    values, problems = read_options({key: raw[key] for key in readers if key in raw}, readers)
    return values, [Problem(_path("retry_kwargs", problem.key), problem.what) for problem in problems]


def _asked(task: Any, name: str, annotated: Mapping[str, Any]) -> Any:
    """What somebody wrote for an attribute: on the instance, in an annotation, on a class; or UNSET."""
    cls = task if isinstance(task, type) else task.__class__
    if cls is not task and name in getattr(task, "__dict__", {}):
        return task.__dict__[name]
    return annotated[name] if name in annotated else explicit_attribute(cls, name)


def _or_none(value: Any) -> Any:
    return None if value is UNSET else value


def _attempts_of(retries: Any) -> float:
    """Celery's retries as attempts in all."""
    if isinstance(retries, bool) or not isinstance(retries, (int, float)) or math.isnan(retries):
        raise ValueError(f"{retries!r} is not a number of retries")
    return math.inf if retries == math.inf else int(max(0, retries)) + 1


def _base_of(backoff: Any) -> float:
    """Celery's retry_backoff as a base: True is 1 s, nothing is below; 0 for none."""
    if not backoff:
        return 0.0
    return 1.0 if backoff is True else max(1.0, seconds_of(backoff))


def _rate_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is not a rate: give a number above 0")
    return float(value)


def _truth_of(value: Any) -> bool:
    return bool(value)


def _dict_of(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is a {type(value).__name__}, not a dict")
    return value


def classes_of(value: Any) -> tuple[type[BaseException], ...]:
    """The error classes in what a task gives as one class or several."""
    try:
        found = tuple(value)
    except TypeError:
        found = (value,)
    return tuple(each for each in found if isinstance(each, type) and issubclass(each, BaseException))


def section_of(
    cls: Callable[..., T],
    setting: str,
    raw: Mapping[str, Any],
    readers: Mapping[str, Reader],
    *,
    code: str = CODE,
) -> tuple[T, list[Finding]]:
    """One dict of HARDENING as a `cls`, whose ValueError says that values exclude each other, and what of it
    cannot be used."""
    values, problems = read_options(raw, readers)
    try:
        built = cls(**values)
    except ValueError as wrong:  # Two values that exclude each other.
        problems.append(Problem("", str(wrong)))
        built = cls()
    return built, _setting_findings(setting, problems, code)


def _setting_findings(setting: str, problems: list[Problem], code: str = CODE) -> list[Finding]:
    return [
        Finding(
            code=code,
            level=Level.ERROR,
            what=str(problem),
            where=f'settings.HARDENING["{setting}"]' + (f'["{problem.key}"]' if problem.key else ""),
            remedy="Correct the value, or remove it for the default.",
        )
        for problem in problems
    ]


def _task_finding(task: Any, problem: Problem, level: Level) -> Finding:
    return Finding(
        code=CODE,
        level=level,
        what=f"task {task.name} has a retry option that cannot be used, {problem}",
        where=f"task {task.name}, {source_of(task)}",
        remedy="Correct the value, or remove it for the project's default.",
    )


def _path(option: str, key: str) -> str:
    return f"{option}[{key!r}]" if key else option
