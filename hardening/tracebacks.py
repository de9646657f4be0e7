"""The text of a traceback, as `traceback.format_exception` makes it; faster for errors like earlier ones.

Half of its time goes into where to put the ^^^^ below the line of a frame, for which Python parses the line.
Errors that come by the thousand come from the same few lines: their frames are formatted once.
"""

from __future__ import annotations

import traceback
from typing import Any

__all__ = ["traceback_text"]

_MOST_KNOWN = 1_000
_LONGEST_KNOWN = 2_000


def traceback_text(exc: BaseException, trace: Any) -> str:
    """As `"".join(format_exception(type(exc), exc, trace))`."""
    formatted = traceback.TracebackException(type(exc), exc, trace, compact=True)
    ahead = [formatted]
    seen: set[int] = set()
    while ahead:
        each = ahead.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.stack = _Stack(each.stack)
        ahead += [other for other in (each.__cause__, each.__context__) if other is not None]
        ahead += getattr(each, "exceptions", None) or ()
    return "".join(formatted.format())


_known: dict[Any, str] = {}


class _Stack(traceback.StackSummary):
    def format_frame_summary(self, frame_summary: Any, **options: Any) -> str:
        # The line is in the key: a file may change while the process runs.
        key = (
            frame_summary.filename,
            frame_summary.lineno,
            frame_summary.name,
            frame_summary.colno,
            frame_summary.end_lineno,
            frame_summary.end_colno,
            frame_summary.line,
        )
        text = _known.get(key)
        if text is None:
            text = super().format_frame_summary(frame_summary, **options)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            # Of a line without end nothing is kept.
            if len(text) <= _LONGEST_KNOWN:
                _known[key] = text
        return text
