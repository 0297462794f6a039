"""Paging through a table that is too large to be counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.core.paginator import Paginator
from django.utils.functional import cached_property

if TYPE_CHECKING:
    from django.db.models import QuerySet

    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

#: Rows that a list can be paged through; further ones are reached by filtering.
COUNTED = 10_000


class CappedPaginator(_Paginator):
    """Counts no further than ``COUNTED`` rows, whatever lies behind them."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, or ``COUNTED`` where there are more."""
        if isinstance(self.object_list, list):
            return len(self.object_list)
        rows = cast("QuerySet[Any]", self.object_list)
        return rows[:COUNTED].count()

    @property
    def is_capped(self) -> bool:
        """Whether there may be more rows than were counted."""
        return self.count >= COUNTED
