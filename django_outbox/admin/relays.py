"""The relays in the admin, as each describes itself every few seconds."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.read_only import ReadOnlyAdmin
from django_outbox.databases import outbox_alias
from django_outbox.models import RelayProcess


class RelayProcessAdmin(ReadOnlyAdmin[RelayProcess]):
    """Which relays are at work, since when, and what they have done."""

    list_display = ("name", "is_at_work", "started_at", "seen_at", "topics", "published", "dead")
    ordering = ("-seen_at",)
    fields = (
        *("name", "is_at_work", "version", "topics", "started_at", "seen_at", "stopped_at"),
        *("published", "failed", "dead", "lost", "open_breakers"),
    )
    readonly_fields = ("is_at_work", "open_breakers")

    def get_queryset(self, request: HttpRequest) -> Any:
        """From where they are written, with whether they live by the database's clock."""
        return RelayProcess.objects.using(outbox_alias()).with_is_alive()

    @admin.display(description=_("at work"), boolean=True)
    def is_at_work(self, relay: Any) -> bool:
        """Seen within the last minute, and not stopped."""
        return bool(relay.is_alive)

    @admin.display(description=_("open breakers"), empty_value="-")
    def open_breakers(self, relay: RelayProcess) -> str:
        """The publishers whose broker takes no messages, and why."""
        return "; ".join(
            f"{alias}: {each.get('reason', '')}" for alias, each in relay.breakers.items()
        )
