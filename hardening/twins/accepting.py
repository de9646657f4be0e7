"""Learns from prefork's children what they run, before Celery drops the tasks that it believes waiting."""

from __future__ import annotations

from typing import Any

__all__ = ["take_in_accepted"]


def take_in_accepted(pool: Any) -> None:
    """Nothing yet."""
