"""Pages of the list without counting a million rows at each view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:  # Generic in the stubs only.
    _Paginator = Paginator  # type: ignore[misc]

__all__ = ["MOST_LISTED", "BoundedPaginator"]

MOST_LISTED = 10_000


class BoundedPaginator(_Paginator):
    """Counts, and pages through, at most MOST_LISTED rows."""

    @cached_property
    def count(self) -> int:
        return min(self._counted, MOST_LISTED)

    @property
    def is_bounded(self) -> bool:
        """Whether there are more rows than are listed."""
        return self._counted > MOST_LISTED

    @property
    def most_listed(self) -> int:
        return MOST_LISTED

    @cached_property
    def _counted(self) -> int:
        counted: int = cast("QuerySet[Any]", self.object_list).order_by()[: MOST_LISTED + 1].count()
        return counted
