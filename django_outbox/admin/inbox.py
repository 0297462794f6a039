"""The inbox in the admin: read only, found by what an index knows, without bodies and outcomes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.asked import split_aggregate
from django_outbox.admin.read_only import ReadOnlyAdmin, Row
from django_outbox.consumers.registry import all_consumers
from django_outbox.models import (
    AggregateCursor,
    CallState,
    ExternalCall,
    ProcessedMessage,
    StoredResponse,
)

#: Consumers that a search asks for, one look-up in the index each.
_CONSUMERS = 200


def consumer_names(rows: QuerySet[Any]) -> list[str]:
    """The consumers that have rows: by leaps along the index that begins with their names."""
    names: list[str] = []
    while len(names) < _CONSUMERS:
        after = rows.filter(consumer__gt=names[-1]) if names else rows
        found = after.order_by("consumer").values_list("consumer", flat=True).first()
        if found is None:
            break
        names.append(found)
    return names


class ConsumerFilter(admin.SimpleListFilter):
    """By the consumers that this process knows; a search finds those of others too."""

    title = _("consumer")
    parameter_name = "consumer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Their names."""
        return [(name, name) for name in sorted({each.name for each in all_consumers()})]

    def has_output(self) -> bool:
        """Also where only the address names one."""
        return super().has_output() or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of one consumer."""
        name = self.value()
        if not name:
            return queryset
        return queryset.none() if "\x00" in name else queryset.filter(consumer=name)


class ByMessageId(ReadOnlyAdmin[Row]):
    """A search box that takes a message id, or a consumer's name."""

    search_fields = ("message_id",)
    search_help_text = _("A whole message id, or the name of a consumer")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By the index of consumer and message id, whatever the consumers are."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            message_id = UUID(term)
        except ValueError:
            return queryset.filter(consumer=term), False
        names = consumer_names(queryset.order_by())
        return queryset.filter(consumer__in=names, message_id=message_id), False


class ProcessedMessageAdmin(ByMessageId[ProcessedMessage]):
    """What each consumer has processed."""

    list_display = (
        "message_id",
        "consumer",
        "topic",
        "aggregate_type",
        "aggregate_id",
        "processed_at",
    )
    list_filter = (ConsumerFilter,)
    lookups = frozenset({"consumer"})
    fields = (*list_display, "sequence")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """The last processed first; of one consumer by message id, which the index of both gives.

        Message ids of version 7 begin with the time, so that is much the same.
        """
        is_of_one = "consumer" in request.GET or request.GET.get("q")
        return ("-message_id",) if is_of_one else ("-processed_at",)


class CallStateFilter(admin.SimpleListFilter):
    """Unresolved calls unless something else is asked for: those are the ones that need somebody."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The states, and all of them."""
        return [*CallState.choices, ("all", _("all"))]

    def choices(self, changelist: Any) -> Any:
        """Django's first choice is "all"; here it is what is unresolved."""
        first, *others = super().choices(changelist)
        return [{**first, "display": _("unresolved")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The calls of the state."""
        if self.value() == "all" or request.GET.get("q"):
            return queryset
        if self.value() in CallState.values:
            return queryset.filter(state=self.value())
        return queryset.unresolved()  # type: ignore[attr-defined,no-any-return]  # its own queryset


class ExternalCallAdmin(ByMessageId[ExternalCall]):
    """Calls to other systems; their outcomes are not shown, they may be personal."""

    list_display = (
        "message_id",
        "consumer",
        "name",
        "state",
        "attempts",
        "updated_at",
        "last_error",
    )
    list_filter = (CallStateFilter,)
    lookups = frozenset({"state"})
    fields = (*list_display, "created_at", "lease_expires_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ExternalCall]:
        """Without outcomes."""
        return super().get_queryset(request).defer("outcome")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """The last changed first; all of them in the order of their ids, which an index has."""
        return ("-id",) if request.GET.get("state") == "all" else ("-updated_at",)


class StoredResponseAdmin(ReadOnlyAdmin[StoredResponse]):
    """Answers to idempotent requests: never their bodies, headers or keys."""

    list_display = ("id", "method", "status_code", "created_at", "expires_at")
    ordering = ("-expires_at",)
    fields = ("method", "status_code", "created_at", "expires_at", "lease_expires_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[StoredResponse]:
        """Without bodies and headers."""
        return super().get_queryset(request).defer("body", "headers")


class AggregateCursorAdmin(ReadOnlyAdmin[AggregateCursor]):
    """How far each aggregate has come, for consumers that drop what is stale."""

    list_display = ("aggregate_type", "aggregate_id", "consumer", "sequence")
    ordering = ("consumer", "aggregate_type", "aggregate_id")
    fields = list_display
    search_fields = ("aggregate_id",)
    search_help_text = _("A whole aggregate, as type:id")
    list_filter = (ConsumerFilter,)
    lookups = frozenset({"consumer"})

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AggregateCursor], search_term: str
    ) -> tuple[QuerySet[AggregateCursor], bool]:
        """By the index of consumer, type and id, whatever the consumers are."""
        if not search_term.strip():
            return queryset, False
        kind, number = split_aggregate(search_term.strip())
        names = consumer_names(queryset.order_by())
        return queryset.filter(
            Q(consumer__in=names), aggregate_type=kind, aggregate_id=number
        ), False
