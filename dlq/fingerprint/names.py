"""Names of exception classes, the same over versions of Python and of libraries. Pure."""

from __future__ import annotations

__all__ = ["class_name"]

# Renamed by Python: the old name is an alias of the new one now.
_RENAMED = {
    "re.error": "PatternError",
    "sre_constants.error": "PatternError",
    "socket.timeout": "TimeoutError",
    "asyncio.exceptions.TimeoutError": "TimeoutError",
    "concurrent.futures._base.TimeoutError": "TimeoutError",
    "select.error": "OSError",
    "IOError": "OSError",
    "EnvironmentError": "OSError",
}


def class_name(path: str) -> str:
    """Without its module: libraries move their classes from file to file, and keep their names."""
    return _RENAMED.get(path) or path.rpartition(".")[2]
