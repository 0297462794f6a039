"""What every database promises about claiming: one body for all of them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_outbox.databases import Database
from django_outbox.models import OutboxMessage
from tests.support.rows import LIMITS, new_message, write

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)


def test_a_claim_returns_what_was_written(database: Database) -> None:
    row = new_message(
        topic="invoice.issued",
        payload='{"b": 1, "a": "ü"}',
        headers={"traceparent": "00-x", "n": 1},
        aggregate=("invoice", "7"),
        sequence=3,
        correlation_id="c",
        causation_id="d",
        schema_version=2,
    )
    write(database, row)
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    [claimed] = batch.claimed
    message = claimed.message
    assert claimed.attempts == message.attempt == 1
    assert claimed.size == row.size
    assert message.id == row.message_id
    assert (message.topic, message.schema_version) == ("invoice.issued", 2)
    assert (message.aggregate_type, message.aggregate_id, message.sequence) == ("invoice", "7", 3)
    assert (message.correlation_id, message.causation_id) == ("c", "d")
    assert json.loads(message.body) == {"b": 1, "a": "ü"}
    assert message.headers == {"traceparent": "00-x", "n": 1}
    assert message.created_at is not None
    assert message.created_at.tzinfo is not None
    stored = OutboxMessage.objects.get()
    assert (stored.lease_token, stored.leased_by) == (batch.token, "host:1")
    assert stored.created_at == message.created_at


def test_nothing_due_is_no_batch(database: Database) -> None:
    assert database.claim(LIMITS, "host:1") is None
    write(database, new_message(delay=timedelta(hours=1)))
    assert database.claim(LIMITS, "host:1") is None
