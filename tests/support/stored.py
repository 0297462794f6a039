"""Outbox rows in any state, as the ORM writes them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_outbox.models import OutboxMessage, Status

AN_HOUR = timedelta(hours=1)


def stored(status: str = Status.PENDING, **columns: Any) -> OutboxMessage:
    """One row; times that are not given are now."""
    now = timezone.now()
    given: dict[str, Any] = {"topic": "invoice.issued", "payload": {"n": 1}, **columns}
    if status == Status.PUBLISHED:
        given.setdefault("published_at", now)
        given.setdefault("attempts", 1)
    if status == Status.DEAD:
        given.setdefault("attempts", 10)
        given.setdefault("last_error", "nack")
    if aggregate := given.pop("aggregate", None):
        given |= {"aggregate_type": aggregate[0], "aggregate_id": aggregate[1]}
    return OutboxMessage.objects.create(message_id=uuid.uuid4(), status=status, **given)


def in_flight(**columns: Any) -> OutboxMessage:
    """One under a live lease."""
    lease = {"lease_token": uuid.uuid4(), "lease_expires_at": timezone.now() + AN_HOUR}
    return stored(**{"attempts": 1, **lease, **columns})


def lapsed(**columns: Any) -> OutboxMessage:
    """One whose relay did not come back in time."""
    lease = {"lease_token": uuid.uuid4(), "lease_expires_at": timezone.now() - AN_HOUR}
    return stored(**{"attempts": 1, **lease, **columns})


def backing_off(**columns: Any) -> OutboxMessage:
    """One that failed and waits for its next try."""
    later = timezone.now() + AN_HOUR
    return stored(**{"attempts": 1, "available_at": later, "last_error": "nack", **columns})


def scheduled(**columns: Any) -> OutboxMessage:
    """One that is to be sent later."""
    return stored(**{"available_at": timezone.now() + AN_HOUR, **columns})
