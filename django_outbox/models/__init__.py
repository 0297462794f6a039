"""The tables of the outbox and of the inbox."""

from django_outbox.models.inbox import (
    AggregateCursor,
    CallState,
    ExternalCall,
    ProcessedMessage,
    StoredResponse,
)
from django_outbox.models.outbox import OutboxMessage, OutboxMessageQuerySet, Status

__all__ = [
    "AggregateCursor",
    "CallState",
    "ExternalCall",
    "OutboxMessage",
    "OutboxMessageQuerySet",
    "ProcessedMessage",
    "Status",
    "StoredResponse",
]
