"""What the gates at the start of workers and of Beats share: they say what is wrong, and end with 78."""

from __future__ import annotations

import sys

import click
from click.core import ParameterSource

from .findings import Finding, Level, errors_of, render

__all__ = ["EX_CONFIG", "failed_check", "given_by_user", "report"]

EX_CONFIG = 78
"""EX_CONFIG of sysexits.h: supervisors should not restart a process that ends with it."""


def report(
    findings: list[Finding],
    *,
    reporting: bool,
    who: str = "worker",
    promise: str = "the delivery promise",
) -> None:
    """Say what was found; end the process when it must not start."""
    errors = errors_of(findings)
    if findings:
        _say(render(findings))
    if not errors:
        return
    if reporting:
        _say(f'HARDENING["MODE"] is "report": {len(errors)} finding(s) above would have stopped this {who}.')
        return
    _say(f"The {who} does not start: {len(errors)} finding(s) contradict {promise} (exit 78).")
    raise SystemExit(EX_CONFIG)


def failed_check(what: str, where: str, exc: Exception) -> Finding:
    """The check itself failed: a process of which we do not know whether it is safe does not start."""
    return Finding(
        code="CH010",
        level=Level.ERROR,
        what=f"{what} failed: {exc!r}",
        where=where,
        remedy="See the traceback above; report it as a defect.",
    )


def given_by_user(option: str) -> bool:
    """Whether who started this process gave an option: without it Celery fills in the setting, read early."""
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source(option) if context is not None else None
    return source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def _say(text: str) -> None:
    # Logging may not be set up yet; a supervisor's log has stderr, whatever Celery does with logging.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
