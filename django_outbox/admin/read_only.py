"""What all admin classes here share: nobody adds, changes or deletes, and no list is counted in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.contrib import admin
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from django_outbox.admin.paging import CappedPaginator

Row = TypeVar("Row", bound=Model)

if TYPE_CHECKING:

    class _ModelAdmin(admin.ModelAdmin[Row], Generic[Row]): ...
else:

    class _ModelAdmin(admin.ModelAdmin, Generic[Row]): ...


class IndexedList(ChangeList):
    """A list in its own order: any other, as ``?o=2`` asks for it, would sort the table."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """What the admin class says, and nothing else."""
        self.params.pop(ORDER_VAR, None)
        return super().get_ordering(request, queryset)


class ReadOnlyAdmin(_ModelAdmin[Row], Generic[Row]):
    """Rows that code writes. Permission: Django's own ``view``; no other is asked for."""

    sortable_by = ()  # no other order has an index
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # facets count the table
    actions: tuple[str, ...] = ()

    class Media:
        css = {"all": ["django_outbox/admin.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """One that keeps its order."""
        return IndexedList

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows come from code, in a transaction of its own."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """A row is what happened: nobody edits it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Pruning deletes what is settled and old enough, and nothing else."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """By its own permission; the right to change is not given to anybody."""
        return request.user.has_perm(f"{self.opts.app_label}.view_{self.opts.model_name}")

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only by the filters that are offered: any other look-up would read the whole table."""
        return lookup in self.lookups

    #: What ``list_filter`` makes of itself in the query string.
    lookups: frozenset[str] = frozenset()
