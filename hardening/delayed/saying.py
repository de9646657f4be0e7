"""Warnings of what goes on for a while: said once a minute."""

from __future__ import annotations

import logging
import time
from typing import Any

__all__ = ["Seldom"]

_EVERY_SECONDS = 60.0


class Seldom:
    """Logs a warning unless one was logged within the last minute."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said_at = -_EVERY_SECONDS

    def warn(self, text: str, *arguments: Any) -> None:
        now = time.monotonic()
        if now - self._said_at >= _EVERY_SECONDS:
            self._said_at = now
            self._logger.warning(text, *arguments)
