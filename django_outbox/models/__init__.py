"""The tables of the outbox and of the inbox."""

from django_outbox.models.inbox import AggregateCursor, ProcessedMessage
from django_outbox.models.outbox import OutboxMessage, OutboxMessageQuerySet, Status

__all__ = [
    "AggregateCursor",
    "OutboxMessage",
    "OutboxMessageQuerySet",
    "ProcessedMessage",
    "Status",
]
