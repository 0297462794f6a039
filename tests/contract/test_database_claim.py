"""What every database promises about claiming: one body for all of them."""

from __future__ import annotations

import json
import tracemalloc
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_outbox.batches import Batch, Limits, Released, Retry
from django_outbox.databases import Database
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessage
from tests.support.rows import LIMITS, new_message, write
from tests.support.threads import elsewhere

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

LONG = 30.0


def limits(rows: int = 500, size: int = 1 << 30) -> Limits:
    return Limits(rows=rows, bytes=size, lease=timedelta(seconds=60))


def claim(database: Database, wanted: Limits = LIMITS) -> Batch:
    batch = database.claim(wanted, "host:1")
    assert batch is not None
    return batch


def ids(batch: Batch | None) -> list[int]:
    return [claimed.row_id for claimed in batch.claimed] if batch else []


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
    batch = claim(database)
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
    stored = OutboxMessage.objects.get()
    assert (stored.lease_token, stored.leased_by) == (batch.token, "host:1")
    assert message.created_at == stored.created_at
    assert stored.lease_expires_at is not None
    lease = stored.lease_expires_at - stored.created_at
    assert 60 <= lease.total_seconds() < 60 + LONG


def test_the_payload_travels_exactly_as_it_is_stored(database: Database) -> None:
    write(database, new_message(payload='{"a": 1.50, "b": [1, 2], "z": "\\u00e9"}'))
    with connection.cursor() as cursor:
        cast = "payload::text" if connection.vendor == "postgresql" else "payload"
        cursor.execute(f"SELECT {cast} FROM {database.table}")
        [(stored,)] = cursor.fetchall()
    [claimed] = claim(database).claimed
    assert claimed.message.body == stored


def test_nothing_due_is_no_batch(database: Database) -> None:
    assert database.claim(LIMITS, "host:1") is None
    write(database, new_message(delay=timedelta(hours=1)))
    assert database.claim(LIMITS, "host:1") is None


def test_rows_come_in_the_order_of_their_ids(database: Database) -> None:
    rows = [new_message(delay=timedelta(milliseconds=20 - number)) for number in range(20)]
    write(database, *rows)
    OutboxMessage.objects.update(available_at=F("available_at") - timedelta(seconds=1))
    batch = claim(database)
    assert [claimed.message.id for claimed in batch.claimed] == [row.message_id for row in rows]
    assert ids(batch) == sorted(ids(batch))


def test_what_is_due_longest_is_taken_first(database: Database) -> None:
    rows = [new_message() for _ in range(10)]
    write(database, *rows)
    late = list(OutboxMessage.objects.order_by("id").values_list("id", flat=True))[:5]
    OutboxMessage.objects.exclude(id__in=late).update(
        available_at=DatabaseNow() - timedelta(seconds=9)
    )
    batch = claim(database, limits(rows=5))
    assert not set(ids(batch)) & set(late)


def test_a_batch_is_bounded_by_rows(database: Database) -> None:
    write(database, *(new_message() for _ in range(7)))
    assert [len(claim(database, limits(rows=3))) for _ in range(3)] == [3, 3, 1]


def test_a_batch_is_bounded_by_bytes_but_always_has_a_row(database: Database) -> None:
    write(database, *(new_message(size=size) for size in (400, 500, 200, 2000, 10, 10, 10)))
    sizes = []
    while batch := database.claim(limits(size=1000), "host:1"):
        sizes.append([claimed.size for claimed in batch.claimed])
    assert sizes == [[400, 500], [200], [2000], [10, 10, 10]]


def test_no_payload_is_loaded_that_is_not_taken(database: Database) -> None:
    megabyte = json.dumps({"text": "x" * 1_000_000})
    for _ in range(20):
        write(database, new_message(payload=megabyte))
    tracemalloc.start()
    try:
        batch = claim(database, limits(size=1_500_000))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(batch) == 1
    assert peak < 8_000_000


def test_attempts_are_counted_at_the_claim_and_refunded_at_the_release(database: Database) -> None:
    write(database, new_message())
    retry, release = Retry(timedelta(0), "x"), Released()
    counted = []
    for verdict in (release, retry, release, retry, retry):
        [claimed] = (batch := claim(database)).claimed
        counted.append(claimed.attempts)
        database.settle(batch.token, {claimed.row_id: verdict})
    assert counted == [1, 1, 2, 2, 3]


def test_what_one_relay_holds_another_does_not_get(database: Database) -> None:
    write(database, *(new_message() for _ in range(10)))
    first = claim(database, limits(rows=4))
    second = elsewhere(lambda: claim(database)).result(LONG)
    assert first.token != second.token
    assert sorted(ids(first) + ids(second)) == list(
        OutboxMessage.objects.order_by("id").values_list("id", flat=True)
    )
    assert elsewhere(lambda: database.claim(LIMITS, "host:3")).result(LONG) is None


def test_a_lapsed_lease_can_be_taken_by_another(database: Database) -> None:
    write(database, new_message(), new_message())
    lost = claim(database)
    assert database.claim(LIMITS, "host:2") is None
    OutboxMessage.objects.update(lease_expires_at=DatabaseNow())
    taken = claim(database)
    assert ids(taken) == ids(lost)
    assert [claimed.attempts for claimed in taken.claimed] == [2, 2]
    settlement = database.settle(lost.token, dict.fromkeys(ids(lost), Released()))
    assert (settlement.applied, settlement.lost) == (0, 2)
    assert set(OutboxMessage.objects.values_list("attempts", "lease_token")) == {(2, taken.token)}


def test_a_lapsed_lease_that_nobody_took_can_still_be_settled(database: Database) -> None:
    write(database, new_message())
    batch = claim(database)
    OutboxMessage.objects.update(lease_expires_at=DatabaseNow() - timedelta(seconds=1))
    assert database.settle(batch.token, {ids(batch)[0]: Released()}).applied == 1


def test_a_long_name_of_a_relay_is_cut(database: Database) -> None:
    write(database, new_message())
    database.claim(LIMITS, "h" * 300)
    assert OutboxMessage.objects.get().leased_by == "h" * 100


def test_a_claim_and_a_settle_work_inside_a_test_s_transaction(database: Database) -> None:
    with transaction.atomic():
        database.insert_messages([new_message()])
        batch = claim(database)
        assert database.settle(batch.token, {ids(batch)[0]: Released()}).applied == 1
        transaction.set_rollback(True)
    assert OutboxMessage.objects.count() == 0


def test_the_next_due_time_is_known(database: Database) -> None:
    assert database.seconds_until_due(LIMITS) is None
    write(database, new_message(delay=timedelta(seconds=500)))
    wait = database.seconds_until_due(LIMITS)
    assert wait is not None
    assert 500 - LONG < wait <= 500
    assert not database.backlog_is_due(LIMITS)
    write(database, new_message())
    assert database.seconds_until_due(LIMITS) == 0
    assert database.backlog_is_due(LIMITS)
    batch = claim(database)
    assert not database.backlog_is_due(LIMITS)
    database.settle(batch.token, {ids(batch)[0]: Retry(timedelta(seconds=100), "x")})
    wait = database.seconds_until_due(LIMITS)
    assert wait is not None
    assert 100 - LONG < wait <= 100
