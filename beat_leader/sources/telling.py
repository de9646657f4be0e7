"""Schedules that were left out: told once in the log, and kept for who asks."""

from __future__ import annotations

import logging
from collections.abc import Mapping

__all__ = ["Broken"]

logger = logging.getLogger("beat_leader")


class Broken:
    """Of one source."""

    def __init__(self) -> None:
        self.all: Mapping[str, str] = {}
        """By name, why."""

    def are(self, broken: Mapping[str, str]) -> None:
        """What the latest reading left out. What was told before is not told again."""
        for name, why in broken.items():
            if self.all.get(name) != why:
                logger.error("the schedule %s is left out: %s", name, why)
        self.all = dict(broken)
