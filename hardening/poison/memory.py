"""What is known of the memory of this worker's processes: samples of /proc, and the kernel's own counters.

A child that died cannot be asked any more, so living ones are looked at every few seconds. A child that dies
between two looks may have grown; the largest that the parent has ever buried is known exactly, though, and
where that figure grew with this death, it is this child's. Where there is no /proc nothing is known.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["SAMPLED_EVERY_SECONDS", "MemoryWatch"]

SAMPLED_EVERY_SECONDS = 5.0

_KILOBYTE = 1024 if sys.platform != "darwin" else 1


class MemoryWatch:
    """The memory of one worker's children. Used from its main loop; never raises."""

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._peaks: dict[int, int] = {}
        self._counter = _oom_counter(proc, cgroups)
        self._kills = self._read_kills()
        self._largest = _largest_buried()

    def sample(self, pids: Iterable[int]) -> None:
        """Look at these children, and forget the others."""
        self._peaks = {pid: peak for pid in pids if (peak := self._peak_of(pid))}
        self._largest = max(self._largest, _largest_buried())
        self._kills = self._read_kills()

    def of_dead(self, pid: int) -> tuple[int, bool]:
        """The peak of a child that died, in bytes, 0 for unknown; and whether the kernel ended a process of
        this control group for memory since the last look."""
        largest, kills = _largest_buried(), self._read_kills()
        peak = self._peaks.pop(pid, 0)
        if largest > self._largest:
            peak = max(peak, largest)
        killed = kills > self._kills
        self._largest, self._kills = max(self._largest, largest), kills
        return peak, killed

    def _peak_of(self, pid: int) -> int:
        try:
            lines = (self._proc / str(pid) / "status").read_text().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
        except (OSError, ValueError, IndexError, StopIteration):
            return 0

    def _read_kills(self) -> int:
        if self._counter is None:
            return 0
        try:
            lines = self._counter.read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError, StopIteration):
            return 0


def _largest_buried() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _KILOBYTE


def _oom_counter(proc: Path, cgroups: Path) -> Path | None:
    """Where the kernel counts what it ended for memory in this control group: of version 2, or 1."""
    try:
        lines = (proc / str(os.getpid()) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    found: dict[str, str] = {}
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found.update({name: path.lstrip("/") for name in controllers.split(",")})
    kinds: tuple[tuple[Path, str | None, str], ...] = (
        (cgroups / "memory", found.get("memory"), "memory.oom_control"),
        (cgroups, found.get(""), "memory.events"),
    )
    for root, group, file in kinds:
        if group is None:
            continue
        # In a container its own group is the root, whatever the host calls it.
        for place in (root / group / file, root / file):
            if place.is_file():
                return place
    return None
