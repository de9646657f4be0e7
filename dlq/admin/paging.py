"""Pages of the list without counting a million rows at each view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:  # Generic in the stubs only.
    _Paginator = Paginator  # type: ignore[misc]

__all__ = ["FEW", "MOST_LISTED", "BoundedList", "BoundedPaginator"]

MOST_LISTED = 5_000
FEW = 1_000
"""So many rows are looked up by their ids, and then put in order."""


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


class BoundedList(ChangeList):
    """Of few rows it puts these alone in order.

    A database that finds rows by an index of their order, in the hope of a page full of them soon, reads all
    of it where filters are rare together and common each.
    """

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if self.result_count > FEW:
            return
        rows = self.queryset
        ids = list(rows.order_by().values_list("pk", flat=True)[:FEW])
        begin = (self.page_num - 1) * self.list_per_page if self.multi_page and not self.show_all else 0
        end = begin + self.list_per_page if self.multi_page and not self.show_all else None
        self.result_list = rows.filter(pk__in=ids)[begin:end]
