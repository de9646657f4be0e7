"""The switch that mends both receivers: a file, so that it can be set by hand too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Lock


class Mended:
    """On once the file exists: from then on every receiver answers well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __bool__(self) -> bool:
        return self.path.exists()

    def set(self) -> None:
        """Mend everything."""
        self.path.touch()


class Visits:
    """Counts requests by their address, for those that fail only at the first visit."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def is_first(self, address: str) -> bool:
        """Whether this address is seen for the first time; counts it as seen."""
        with self._lock:
            self._counts[address] += 1
            return self._counts[address] == 1
