"""For admin classes of models with encrypted fields; and the keys on the default site."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import Q, QuerySet


class BlindSearchMixin:
    """Lets the admin's search box find rows by whole sealed values.

    ``blind_search_fields = ["tax_id"]``, beside ``search_fields``: rows match when one of these
    fields equals what was typed (as its blind index's normalisers see it), or when
    ``search_fields`` match.
    """

    blind_search_fields: tuple[str, ...] | list[str] = ()

    def get_search_fields(self, request: Any) -> Any:
        """Django shows the search box only where something is searched."""
        return super().get_search_fields(request) or self.blind_search_fields  # type: ignore[misc]  # a mixin

    def get_search_results(
        self, request: Any, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """What ``search_fields`` find, and the rows with exactly this sealed value."""
        clear_fields = getattr(self, "search_fields", ())
        found, may_repeat = queryset.none(), False
        if clear_fields:
            found, may_repeat = super().get_search_results(request, queryset, search_term)  # type: ignore[misc]  # a mixin
        if not search_term:
            return (found if clear_fields else queryset), may_repeat
        sealed = Q()
        for name in self.blind_search_fields:
            sealed |= Q(**{name: search_term})
        return found | queryset.filter(sealed), may_repeat


if apps.is_installed("django_outbox.encryption"):
    # The mixin alone needs no app; the keys have a table.
    from django_outbox.encryption.key_admin import register

    register(admin.site)
