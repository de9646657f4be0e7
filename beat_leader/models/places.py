"""Where the tables of beat_leader are: BEAT_LEADER["DATABASE"], also without a router."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

from ..conf import beat_settings

__all__ = ["HereManager"]

M = TypeVar("M", bound=models.Model)


class HereManager(models.Manager[M]):
    """Reads and writes where BEAT_LEADER["DATABASE"] says, also without a router."""

    def get_queryset(self) -> models.QuerySet[M, Any]:
        queryset = super().get_queryset()
        alias = beat_settings().database
        return queryset.using(alias) if alias and not self._db else queryset
