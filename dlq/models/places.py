"""Where the tables of dlq are: DLQ["DATABASE"], also without a router."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

from ..conf import dlq_settings

__all__ = ["HereManager"]

M = TypeVar("M", bound=models.Model)


class HereManager(models.Manager[M]):
    """Reads and writes where DLQ["DATABASE"] says, also without a router."""

    def get_queryset(self) -> models.QuerySet[M, Any]:
        queryset = super().get_queryset()
        alias = dlq_settings().database
        return queryset.using(alias) if alias and not self._db else queryset
