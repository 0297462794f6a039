"""What a claim reads from the table, and the messages it becomes. On the relay's hot path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

from django_outbox.batches import Claimed
from django_outbox.conf import outbox_settings
from django_outbox.databases.clock import as_aware
from django_outbox.messages import Message

#: The columns a claim returns, in the order that ``claimed_rows`` takes them apart. JSON columns are
#: asked for as text: the payload travels exactly as stored and is decoded by nobody on the way.
CLAIMED_COLUMNS = (
    "id",
    "attempts",
    "size",
    "message_id",
    "topic",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "sequence",
    "payload",
    "headers",
    "correlation_id",
    "causation_id",
    "created_at",
)


def claimed_rows(rows: Sequence[Sequence[Any]]) -> tuple[Claimed, ...]:
    """The rows of a claim, sorted by id: RETURNING has no order."""
    source = outbox_settings().source
    claimed = []
    for row in sorted(rows, key=itemgetter(0)):
        (
            row_id,
            attempts,
            size,
            message_id,
            topic,
            schema_version,
            aggregate_type,
            aggregate_id,
            sequence,
            payload,
            headers,
            correlation_id,
            causation_id,
            created_at,
        ) = row
        message = Message(
            id=message_id if type(message_id) is UUID else UUID(message_id),
            topic=topic,
            body=payload,
            headers={} if headers == "{}" else json.loads(headers),
            schema_version=schema_version,
            aggregate_type=aggregate_type,
            aggregate_id=aggregate_id,
            sequence=sequence,
            correlation_id=correlation_id,
            causation_id=causation_id,
            source=source,
            created_at=as_aware(created_at),
            attempt=attempts,
        )
        claimed.append(Claimed(row_id, attempts, size, message))
    return tuple(claimed)
