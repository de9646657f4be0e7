"""A finding: what is wrong, where, and what to do; the one form that checks, gates and status share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Finding", "Level", "errors_of", "render"]


class Level(IntEnum):
    """How much a finding matters. An ERROR stops a worker from starting."""

    INFO = 10
    WARNING = 20
    ERROR = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the configuration, with its remedy.

    `code` is stable and never reused. `where` names a setting, or a task with its file.
    """

    code: str
    level: Level
    what: str
    where: str
    remedy: str

    def as_dict(self) -> dict[str, str]:
        """Plain form for --json."""
        return {
            "code": self.code,
            "level": self.level.name.lower(),
            "what": self.what,
            "where": self.where,
            "remedy": self.remedy,
        }


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Those that stop a worker."""
    return [finding for finding in findings if finding.level >= Level.ERROR]


def render(findings: Iterable[Finding]) -> str:
    """A readable list: what, where, remedy."""
    lines: list[str] = []
    for finding in sorted(findings, key=lambda f: (-f.level, f.code, f.where)):
        lines.append(f"{finding.level.name} {finding.code}: {finding.what}")
        lines.append(f"    where:  {finding.where}")
        lines.append(f"    remedy: {finding.remedy}")
    return "\n".join(lines)
