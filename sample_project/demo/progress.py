"""A progress bar on standard error: redrawn in place on a terminal, a line at each quarter elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

WIDTH = 40
QUARTERS = 4


class Progress:
    """Shows how many of `total` are done."""

    def __init__(self, label: str, total: int, *, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._shown = -1

    def show(self, done: int) -> None:
        """Draw the bar, if it looks different from before."""
        steps = WIDTH if self._stream.isatty() else QUARTERS
        part = done * steps // self._total if self._total else steps
        if self._stream.isatty():
            bar = "#" * part + "." * (WIDTH - part)
            self._write(f"\r  [{bar}] {done}/{self._total} {self._label}")
        elif part > self._shown:
            self._shown = part
            self._write(f"  {done}/{self._total} {self._label}\n")

    def end(self) -> None:
        """Leave the bar as it is and go to the next line."""
        if self._stream.isatty():
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def say(text: str) -> None:
    """One line for whoever watches; standard output is kept for the ledger."""
    print(text, file=sys.stderr, flush=True)
