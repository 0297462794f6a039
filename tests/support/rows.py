"""Outbox rows for tests of the databases, written past the producer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.db import transaction

from django_outbox.batches import Limits
from django_outbox.databases import Database
from django_outbox.databases.base import Inserted, NewMessage

#: A claim that takes whatever is due.
LIMITS = Limits(rows=500, bytes=1 << 30, lease=timedelta(seconds=60))


def new_message(
    topic: str = "invoice.issued",
    payload: str = '{"id": 1}',
    *,
    headers: Mapping[str, object] | None = None,
    aggregate: tuple[str, str] = ("", ""),
    sequence: int | None = None,
    correlation_id: str = "",
    causation_id: str = "",
    schema_version: int = 1,
    message_id: UUID | None = None,
    available_at: datetime | None = None,
    delay: timedelta = timedelta(0),
    size: int | None = None,
) -> NewMessage:
    header_text = json.dumps(headers or {})
    return NewMessage(
        message_id=message_id or uuid4(),
        topic=topic,
        schema_version=schema_version,
        aggregate_type=aggregate[0],
        aggregate_id=aggregate[1],
        sequence=sequence,
        payload=payload,
        headers=header_text,
        correlation_id=correlation_id,
        causation_id=causation_id,
        size=len(payload.encode()) + len(header_text.encode()) if size is None else size,
        available_at=available_at,
        delay=delay,
    )


def write(database: Database, *rows: NewMessage) -> dict[UUID, Inserted]:
    """Write rows in a transaction of their own."""
    with transaction.atomic(using=database.alias):
        return database.insert_messages(rows)
