"""The tables of the outbox, of the inbox, and of the relays at work."""

from django_outbox.models.inbox import (
    AggregateCursor,
    CallState,
    ExternalCall,
    ProcessedMessage,
    StoredResponse,
)
from django_outbox.models.outbox import OutboxMessage, OutboxMessageQuerySet, Status
from django_outbox.models.relays import RelayProcess, RelayProcessQuerySet

__all__ = [
    "AggregateCursor",
    "CallState",
    "ExternalCall",
    "OutboxMessage",
    "OutboxMessageQuerySet",
    "ProcessedMessage",
    "RelayProcess",
    "RelayProcessQuerySet",
    "Status",
    "StoredResponse",
]
