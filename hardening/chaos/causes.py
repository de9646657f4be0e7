"""Why a task ran twice: the fault that reached its first run, its publish, or what leads to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .facts import Hit, Mark, Published

__all__ = ["UNKNOWN", "Causes"]

UNKNOWN = "unknown"
_GRACE_SECONDS = 0.5
"""A fault is noted just after it was done, and the clocks of processes are read at different moments."""

_WAITED_SECONDS = 2.0
"""How long a message may have waited in its worker for a free process."""


@dataclass(frozen=True, slots=True)
class Causes:
    """Looks for causes in all starts, all ends and all faults of a run."""

    starts: Mapping[str, Sequence[Mark]]
    ends: Mapping[str, Sequence[Mark]]
    hits: Sequence[Hit]

    def of(self, each: Published | None, before: Mark, again: Mark) -> tuple[str, str]:
        """The cause of the second of two completed runs, and the evidence. `each`: None for a stranger."""
        first, second = self._start_of(before), self._start_of(again)
        runs = f"ran {first.at:.2f}..{before.at:.2f} in {before.pid}, again {second.at:.2f}..{again.at:.2f}"
        holder, other = sorted((first, second), key=lambda mark: mark.at)
        hit = self._first_hit(holder, holder.at, other.at)
        if hit is not None:
            return hit.name, f"{runs}; {hit.name} {hit.note} at {hit.at:.2f}"
        cause, why = (UNKNOWN, "") if each is None else self._before_it_ran(each, second)
        waited = self._while_it_waited(holder.at) if cause == UNKNOWN else None
        if waited is not None:
            cause, why = f"{waited.name} (while it waited in its worker)", f"{waited.name} at {waited.at:.2f}"
        return cause, f"{runs}; {why}" if why else runs

    def _while_it_waited(self, begun: float) -> Hit | None:
        """What broke the connection under a message whose run was about to begin: it went back, and ran."""
        within = [hit for hit in self.hits if hit.pids is None and 0 <= begun - hit.at <= _WAITED_SECONDS]
        return max(within, key=lambda hit: hit.at, default=None)

    def _before_it_ran(self, each: Published, second: Mark) -> tuple[str, str]:
        """What may have put two messages into the world."""
        for hit in self.hits:
            if hit.pids is None and hit.at <= each.span[1] and max(hit.at, hit.until) >= each.span[0]:
                return f"{hit.name} (during its publish)", f"{hit.name} at {hit.at:.2f}"
        if each.tries > 1:
            return "published again", "its publish was not confirmed, and repeated"
        for leader in each.after:
            for end in self.ends.get(leader, ()):
                found = self._first_hit(end, end.at, second.at)
                if found is not None:
                    return (
                        f"{found.name} (on what leads to it)",
                        f"{found.name} {found.note} at {found.at:.2f}",
                    )
            if len(self.starts.get(leader, ())) > 1:
                return "what leads to it ran again", leader
        for start in self.starts.get(each.key, ()):
            found = self._first_hit(start, start.at, second.at)
            if found is not None:
                return f"{found.name} (on an earlier attempt)", f"{found.name} {found.note} at {found.at:.2f}"
        return UNKNOWN, ""

    def _start_of(self, end: Mark) -> Mark:
        """The start of the run that ended here."""
        starts = [mark for mark in self.starts.get(end.key, ()) if mark.pid == end.pid and mark.at <= end.at]
        return max(starts, key=lambda mark: mark.at, default=end)

    def _first_hit(self, run: Mark, begin: float, end: float) -> Hit | None:
        """The first fault that reached the process of a run in that time: its own before everybody's."""
        within = [
            hit
            for hit in self.hits
            if hit.reaches(run)
            and hit.at <= end + _GRACE_SECONDS
            and max(hit.at, hit.until) >= begin - _GRACE_SECONDS
        ]
        return min(within, key=lambda hit: (hit.pids is None, hit.at), default=None)
