"""The figure of duplicates, over all workers: how often each task succeeded again, or a copy was not run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardening.store import StateStore, update

__all__ = ["DUPLICATES_KEY", "Duplicates", "Tally", "duplicates_of"]

DUPLICATES_KEY = "twins:duplicates"
MOST_TASKS = 90
OTHERS = "(other tasks)"
_KEPT_SECONDS = 30 * 24 * 3600.0
_LONGEST_NAME = 600
"""In bytes, as JSON has it: so many tasks fit into a document."""

RAN_AGAIN = "ran_again"
NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Of one task: second successes, and copies that were acknowledged without a run."""

    task: str
    ran_again: int
    not_run: int
    last_at: float


class Tally:
    """What this worker has seen and not yet written. A worker that dies has said it in its log."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, str]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._counted)

    def ran_again(self, task: str) -> None:
        """A task succeeded although a success of the same work was recorded."""
        self._counted[_short(task), RAN_AGAIN] += 1

    def not_run(self, task: str) -> None:
        """A copy was acknowledged, for its work had succeeded."""
        self._counted[_short(task), NOT_RUN] += 1

    def write(self, store: StateStore) -> None:
        """Add it to the figure of all workers."""
        if not self._counted:
            return
        # Taken off first: on gevent more is counted while this is written.
        counted, self._counted = self._counted, Counter()
        try:
            update(
                store,
                DUPLICATES_KEY,
                lambda found, now: (_added(found, counted, now), None),
                ttl_seconds=_KEPT_SECONDS,
            )
        except Exception:
            self._counted.update(counted)
            raise


def duplicates_of(store: StateStore) -> list[Duplicates]:
    """The figure, the latest first."""
    found = [
        Duplicates(
            task=name,
            ran_again=int(row.get(RAN_AGAIN, 0)),
            not_run=int(row.get(NOT_RUN, 0)),
            last_at=float(row.get("last_at", 0)),
        )
        for name, row in _tasks(store.read(DUPLICATES_KEY).value).items()
    ]
    return sorted(found, key=lambda each: -each.last_at)


def _short(task: str) -> str:
    return task if len(json.dumps(task)) <= _LONGEST_NAME else task[: _LONGEST_NAME // 12 - 1]


def _tasks(document: Mapping[str, Any] | None) -> dict[str, Any]:
    tasks = (document or {}).get("tasks")
    rows = tasks if isinstance(tasks, dict) else {}
    return {name: row for name, row in rows.items() if isinstance(row, dict)}


def _added(
    document: Mapping[str, Any] | None, counted: Mapping[tuple[str, str], int], now: float
) -> dict[str, Any]:
    tasks = _tasks(document)
    for (task, kind), number in counted.items():
        name = task if task in tasks or len(tasks) < MOST_TASKS else OTHERS
        row = tasks.setdefault(name, {})
        row[kind] = int(row.get(kind, 0)) + number
        row["last_at"] = now
    return {"tasks": tasks}
