"""Takes secrets out of what is logged about a failing task: tracebacks show the error as it was raised."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .current import current

__all__ = ["RedactErrors", "install"]

_PLAIN = logging.Formatter()


class RedactErrors(logging.Filter):
    """Redacts message arguments and traceback of a record that is logged while a task runs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True: nothing is dropped."""
        execution = current()
        if execution is None or not (record.exc_info or _mentions_error(record)):
            return True
        clean = execution.cleaner()
        if isinstance(record.args, Mapping):
            record.args = {k: clean(v) if isinstance(v, str) else v for k, v in record.args.items()}
            record.data = record.args
        if record.exc_info:
            record.exc_text = clean(record.exc_text or _formatted(record.exc_info))
            record.exc_info = None  # Formatters print exc_text; what forwards exc_info would show the error.
        return True


def _formatted(exc_info: Any) -> str:
    try:
        return _PLAIN.formatException(exc_info)
    except Exception:  # A handler reports what it cannot format; a filter would break the caller.
        return "(this traceback cannot be formatted)"


def _mentions_error(record: logging.LogRecord) -> bool:
    return isinstance(record.args, Mapping) and "exc" in record.args


def install() -> None:
    """Put the filter on every handler that exists. Idempotent.

    On handlers, as a logger's filters do not see what its children log.
    """
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for handler in {h for logger in loggers for h in getattr(logger, "handlers", ())}:
        if not any(isinstance(f, RedactErrors) for f in handler.filters):
            handler.addFilter(RedactErrors())
