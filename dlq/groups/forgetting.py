"""Drops figures that no page shows any more, a few at a time: hours, and workers that are long gone."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from ..models import GroupFacet, GroupHour
from .counting import COUNTING
from .turns import one_at_a_time

__all__ = ["HOURS_KEPT", "WORKERS_KEPT", "forget_old_figures"]

HOURS_KEPT = timedelta(days=31)
WORKERS_KEPT = timedelta(days=31)
"""Names of workers are new with each of their containers: without an end their rows would only grow."""


def forget_old_figures(limit: int = 500, *, alias: str) -> int:
    """Delete up to `limit` rows of each kind; returns how many. Of groups and letters it takes none."""
    now = timezone.now()
    hours = GroupHour.objects.using(alias).filter(hour__lt=now - HOURS_KEPT)
    workers = GroupFacet.objects.using(alias).filter(facet="worker", last_seen_at__lt=now - WORKERS_KEPT)
    return _delete(hours, limit, alias) + _delete(workers, limit, alias)


def _delete(rows: QuerySet[GroupHour] | QuerySet[GroupFacet], limit: int, alias: str) -> int:
    # Read first, without a transaction: most of the time there are none.
    old = list(rows.order_by().values_list("pk", flat=True)[:limit])
    if not old:
        return 0
    with one_at_a_time(COUNTING, alias=alias) as mine:
        # Asked again under the turn: a counter may have added to one meanwhile.
        return rows.filter(pk__in=old).delete()[0] if mine else 0
