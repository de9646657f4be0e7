"""Reads the schedules again beside the tick: ten thousand of them take a while, in which others are due."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from .entry import Entry, Source

__all__ = ["Rereading"]

_MOST_SECONDS = 30.0


class Rereading:
    """One at a time, in a thread that stays. Used by the thread that ticks only."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._thread: ThreadPoolExecutor | None = None
        self._future: Future[Mapping[str, Entry]] | None = None

    @property
    def under_way(self) -> bool:
        """Whether one was begun whose result was not taken."""
        return self._future is not None

    def begin(self) -> None:
        """Returns at once."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beat-schedules")
        self._future = self._thread.submit(self._source.entries)

    def take(self) -> Mapping[str, Entry] | None:
        """What was read; None: it is not done. Raises what the source raised."""
        if self._future is None or not self._future.done():
            return None
        future, self._future = self._future, None
        return future.result()

    def wait(self, seconds: float = _MOST_SECONDS) -> None:
        """Until it is done, if it is under way."""
        if self._future is not None:
            with suppress(Exception):
                self._future.result(seconds)

    def drop(self) -> None:
        """Nobody wants its result; a source is read by one thread at a time."""
        self.wait()
        self._future = None

    def close(self) -> None:
        """It may go on for the seconds that its source takes at most."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
