"""The outbox in Django's admin. Imported by the admin's autodiscovery."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import AdminSite

from django_outbox.admin.inbox import (
    AggregateCursorAdmin,
    ExternalCallAdmin,
    ProcessedMessageAdmin,
    StoredResponseAdmin,
)
from django_outbox.admin.messages import OutboxMessageAdmin
from django_outbox.admin.relays import RelayProcessAdmin
from django_outbox.models import (
    AggregateCursor,
    ExternalCall,
    OutboxMessage,
    ProcessedMessage,
    RelayProcess,
    StoredResponse,
)

__all__ = [
    "AggregateCursorAdmin",
    "ExternalCallAdmin",
    "OutboxMessageAdmin",
    "ProcessedMessageAdmin",
    "RelayProcessAdmin",
    "StoredResponseAdmin",
    "register",
]


def register(site: AdminSite) -> None:
    """Put everything of the outbox on a site: the default one has it, one of your own asks for it."""
    site.register(OutboxMessage, OutboxMessageAdmin)
    site.register(RelayProcess, RelayProcessAdmin)
    site.register(ProcessedMessage, ProcessedMessageAdmin)
    site.register(ExternalCall, ExternalCallAdmin)
    site.register(StoredResponse, StoredResponseAdmin)
    site.register(AggregateCursor, AggregateCursorAdmin)


register(admin.site)
