"""The message list: what is pending, published, dead, and the button that requeues.

Nothing can be edited. No payload is fetched, and the table is never counted in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_outbox.admin.paging import CappedPaginator
from django_outbox.databases import outbox_alias
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet
from django_outbox.operations.requeue import Requeued, requeue

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[OutboxMessage]
else:
    _ModelAdmin = admin.ModelAdmin

#: What a list shows of an error; the message's own page has all of it.
_ERROR_SHOWN = 80


@admin.register(OutboxMessage)
class OutboxMessageAdmin(_ModelAdmin):
    """Messages by status. Permissions: ``view_outboxmessage`` to see, ``requeue_outboxmessage`` to requeue."""

    list_display = (
        "message_id",
        "topic",
        "status",
        "aggregate",
        "attempts",
        "created_at",
        "available_at",
        "error",
    )
    list_filter = ("status",)
    search_fields = ("message_id__exact",)
    search_help_text = _("A whole message id")
    sortable_by = ()  # no other order has an index
    ordering = ("-id",)
    list_per_page = 100
    paginator = CappedPaginator
    show_full_result_count = False
    actions = ("requeue_selected",)
    fields = (
        ("message_id", "topic", "schema_version"),
        ("aggregate_type", "aggregate_id", "sequence"),
        ("correlation_id", "causation_id"),
        ("status", "attempts", "size"),
        ("created_at", "available_at", "published_at"),
        ("leased_by", "lease_expires_at"),
        "last_error",
    )
    readonly_fields = (
        "message_id",
        "topic",
        "schema_version",
        "aggregate_type",
        "aggregate_id",
        "sequence",
        "correlation_id",
        "causation_id",
        "status",
        "attempts",
        "size",
        "created_at",
        "available_at",
        "published_at",
        "leased_by",
        "lease_expires_at",
        "last_error",
    )

    def get_queryset(self, request: HttpRequest) -> OutboxMessageQuerySet:
        """From the database that is written to, without payload and headers."""
        found: OutboxMessageQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return found.using(outbox_alias()).defer("payload", "headers")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[OutboxMessage], search_term: str
    ) -> tuple[QuerySet[OutboxMessage], bool]:
        """By the id as an id: Django's search would compare texts, past the index, in another form."""
        if not search_term:
            return queryset, False
        try:
            return queryset.filter(message_id=UUID(search_term.strip())), False
        except ValueError:
            return queryset.none(), False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Messages are enqueued by code, in a business transaction."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutboxMessage | None = None) -> bool:
        """A message is what happened: nobody edits it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: OutboxMessage | None = None) -> bool:
        """Pruning deletes what is settled, and nothing else."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: OutboxMessage | None = None) -> bool:
        """By its own permission; the right to change is not given to anybody."""
        return self._may(request, "view")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """Named by the action below."""
        return self._may(request, "requeue")

    def _may(self, request: HttpRequest, what: str) -> bool:
        return request.user.has_perm(f"django_outbox.{what}_outboxmessage")

    @admin.display(description=_("aggregate"))
    def aggregate(self, message: OutboxMessage) -> str:
        """Type and id, or a dash."""
        return f"{message.aggregate_type} {message.aggregate_id}".strip() or "-"

    @admin.display(description=_("last error"))
    def error(self, message: OutboxMessage) -> str:
        """Its beginning."""
        text = message.last_error
        return text if len(text) <= _ERROR_SHOWN else f"{text[:_ERROR_SHOWN]}…"

    @admin.action(description=_("Requeue selected dead messages"), permissions=["requeue"])
    def requeue_selected(self, request: HttpRequest, queryset: OutboxMessageQuerySet) -> None:
        """Dead to pending; what is in flight or not dead is left alone, and that is said."""
        done = requeue(queryset)
        level = messages.SUCCESS if done.requeued else messages.WARNING
        self.message_user(request, _said(done), level)


def _said(done: Requeued) -> str:
    parts = [
        ngettext("%d message requeued.", "%d messages requeued.", done.requeued) % done.requeued
    ]
    if done.in_flight:
        parts.append(
            ngettext(
                "%d is in flight and was left alone.",
                "%d are in flight and were left alone.",
                done.in_flight,
            )
            % done.in_flight
        )
    if done.not_dead:
        parts.append(
            ngettext("%d was not dead.", "%d were not dead.", done.not_dead) % done.not_dead
        )
    return " ".join(parts)
