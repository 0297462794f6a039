from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from example_project.ledger.models import Entry


@admin.register(Entry)
class EntryAdmin(admin.ModelAdmin):
    """Bookings come from events and stay as they are."""

    list_display = ["reference", "account", "amount", "currency", "booked_at"]
    list_filter = ["account"]
    search_fields = ["reference"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Entry | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Entry | None = None) -> bool:
        return False
