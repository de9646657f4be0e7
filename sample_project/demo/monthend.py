"""A competing writer: it holds the database's write lock for moments, as a nightly import would."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread

HOLD_SECONDS = 0.6
PAUSE_SECONDS = 0.4
PATIENCE_SECONDS = 1.0


class MonthEnd:
    """Runs in a thread of its own between `start` and `stop`."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._stop = Event()
        self._thread = Thread(target=self._run, name="month-end", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it; safe to call twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with closing(
            sqlite3.connect(self._database, timeout=PATIENCE_SECONDS, isolation_level=None)
        ) as connection:
            while not self._stop.is_set():
                with suppress(sqlite3.OperationalError):  # Others hold the lock: its turn comes again.
                    connection.execute("BEGIN IMMEDIATE")
                    self._stop.wait(HOLD_SECONDS)
                    connection.execute("ROLLBACK")
                self._stop.wait(PAUSE_SECONDS)
