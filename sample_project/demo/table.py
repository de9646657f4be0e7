"""Lays out a table in plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def laid_out(rows: Sequence[Sequence[str]], *, words: Collection[int], total: bool = False) -> list[str]:
    """The lines of a table. The first row is its head; the columns in `words` are aligned to the left.

    With `total` the last row is set apart, as the head is.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place in words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    lines[1:1] = [rule]
    if total:
        lines[-1:-1] = [rule]
    return lines
