"""Writes docs/reference from the code: `python -m docs.generate`. A test checks that it is current."""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from beat_leader.conf import BeatSettings
from beat_leader.entry import Policy
from dlq.conf import DlqSettings
from dlq.thresholds import AlertThresholds
from docs import classification, retry_policy
from hardening.conf import HardeningSettings
from hardening.core.reasons import Reason
from hardening.enforced import ENFORCED, Enforced

REFERENCE = Path(__file__).parent / "reference"
HEAD = "<!-- Written by `python -m docs.generate`; edit the code instead. -->\n"


def pages() -> dict[str, str]:
    """The generated pages by file name."""
    return {
        "settings.md": _settings(),
        "enforced.md": _enforced(),
        "reasons.md": _reasons(),
        "classification.md": classification.page(HEAD),
        "retry-policy.md": retry_policy.page(HEAD),
    }


def _settings() -> str:
    lines = [HEAD, "# Settings", ""]
    for name, cls in (
        ("HARDENING", HardeningSettings),
        ("DLQ", DlqSettings),
        ('DLQ["ALERTS"]', AlertThresholds),
        ("BEAT_LEADER", BeatSettings),
        ('BEAT_LEADER["SCHEDULES"][pattern]', Policy),
    ):
        lines += [
            f"## `{name}`",
            "",
            inspect.getdoc(cls) or "",
            "",
            "| key | type | default | meaning |",
            "|---|---|---|---|",
        ]
        told = _field_docs(cls)
        lines += [
            f"| `{field.name.upper()}` | `{_cell(field.type)}` | `{_default(field)}` "
            f"| {_cell(told[field.name])} |"
            for field in fields(cls)
        ]
        lines.append("")
    return "\n".join(lines)


def _enforced() -> str:
    lines = [
        HEAD,
        "# Enforced Celery settings",
        "",
        "A project that sets nothing gets these values. A project that sets another value than the accepted",
        "ones is told so, and its workers do not start (exit 78). On gevent and eventlet the prefetch",
        "multiplier is the one that keeps the pool saturated; see `hardening/enforced.py`.",
        "",
        "| setting | value | brokers | Celery | why |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row.setting}` | `{row.value!r}`{'' if row.write else ' (checked only)'} "
        f"| {row.transport or 'all'} | {_versions(row)} | {_cell(row.why)} |"
        for row in ENFORCED
    ]
    return "\n".join([*lines, ""])


def _reasons() -> str:
    lines = [HEAD, "# Reason codes of dead letters", "", "| code | meaning |", "|---|---|"]
    lines += [f"| `{reason.value}` | {_cell(reason.explanation)} |" for reason in Reason]
    return "\n".join([*lines, ""])


def _versions(row: Enforced) -> str:
    since = f"from {row.since[0]}.{row.since[1]}" if row.since != (0, 0) else ""
    until = f"before {row.until[0]}.{row.until[1]}" if row.until != (99, 0) else ""
    return " ".join(part for part in (since, until) if part) or "all"


def _default(field: Any) -> str:
    if field.default is not MISSING:
        plain = str(field.default) if isinstance(field.default, StrEnum) else field.default
        return _cell(repr(plain))
    return _cell(repr(field.default_factory())) if field.default_factory is not MISSING else "(required)"


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """The string below each field of a dataclass."""
    body = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(body, ast.ClassDef)
    told: dict[str, str] = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            told[statement.target.id] = inspect.cleandoc(str(after.value.value))
    return told


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """Write every page."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main()
