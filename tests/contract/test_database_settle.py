"""What every database promises about settling: one body for all of them."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from django_outbox.batches import Batch, Dead, Published, Released, Retry
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage, Status
from tests.support.rows import LIMITS, new_message, write

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)


def claim(database: Database) -> Batch:
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    return batch


def test_each_verdict_is_written_and_every_lease_ends(database: Database) -> None:
    write(database, *(new_message() for _ in range(8)))
    batch = claim(database)
    ids = [claimed.row_id for claimed in batch.claimed]
    verdicts = {
        ids[0]: Published(),
        ids[1]: Published(),
        ids[2]: Released(),
        ids[3]: Released(),
        ids[4]: Retry(timedelta(seconds=60), "Nacked: no reason"),
        ids[5]: Retry(timedelta(seconds=0.5), "TimedOut: 20 s"),
        ids[6]: Dead("Unroutable: no queue"),
        ids[7]: Dead("TooLarge"),
    }
    settlement = database.settle(batch.token, verdicts)
    assert (settlement.applied, settlement.lost, settlement.lost_rows) == (8, 0, ())
    rows = list(OutboxMessage.objects.order_by("id"))
    assert [(row.status, row.attempts, row.last_error) for row in rows] == [
        (Status.PUBLISHED, 1, ""),
        (Status.PUBLISHED, 1, ""),
        (Status.PENDING, 0, ""),
        (Status.PENDING, 0, ""),
        (Status.PENDING, 1, "Nacked: no reason"),
        (Status.PENDING, 1, "TimedOut: 20 s"),
        (Status.DEAD, 1, "Unroutable: no queue"),
        (Status.DEAD, 1, "TooLarge"),
    ]
    assert all(row.lease_token is None and row.lease_expires_at is None for row in rows)
    assert rows[0].published_at is not None
    assert rows[0].published_at >= rows[0].created_at
    assert rows[2].available_at == rows[2].created_at
    waits = [(row.available_at - rows[0].published_at).total_seconds() for row in rows[4:6]]
    assert waits == pytest.approx([60, 0.5], abs=0.25)


def test_published_rows_are_deleted_where_nobody_wants_them(database: Database) -> None:
    write(database, new_message(), new_message())
    batch = claim(database)
    ids = [claimed.row_id for claimed in batch.claimed]
    settlement = database.settle(
        batch.token, {ids[0]: Published(), ids[1]: Released()}, delete_published=True
    )
    assert settlement.applied == 2
    assert list(OutboxMessage.objects.values_list("id", flat=True)) == [ids[1]]


def test_a_lost_lease_is_named_and_left_as_it_is(database: Database) -> None:
    write(database, *(new_message() for _ in range(5)))
    batch = claim(database)
    ids = [claimed.row_id for claimed in batch.claimed]
    other = uuid4()
    OutboxMessage.objects.filter(id__in=ids[:4]).update(lease_token=other)
    settlement = database.settle(
        batch.token,
        {
            ids[0]: Published(),
            ids[1]: Released(),
            ids[2]: Retry(timedelta(seconds=1), "x"),
            ids[3]: Dead("x"),
            ids[4]: Published(),
        },
    )
    assert (settlement.applied, settlement.lost) == (1, 4)
    assert settlement.lost_rows == tuple(ids[:4])
    left = OutboxMessage.objects.filter(id__in=ids[:4])
    assert set(left.values_list("status", "attempts", "lease_token", "last_error")) == {
        (Status.PENDING, 1, other, "")
    }


def test_a_reason_of_any_length_and_kind_is_kept_as_far_as_it_fits(database: Database) -> None:
    write(database, new_message(), new_message())
    batch = claim(database)
    ids = [claimed.row_id for claimed in batch.claimed]
    reasons = ["x" * 5000, "nul \x00 and half a pair \ud800 and 100 % {of} it's 'here' \\"]
    settlement = database.settle(
        batch.token, {ids[0]: Retry(timedelta(0), reasons[0]), ids[1]: Dead(reasons[1])}
    )
    assert settlement.applied == 2
    kept = list(OutboxMessage.objects.order_by("id").values_list("last_error", flat=True))
    assert kept[0] == "x" * 2000
    assert kept[1] == "nul \ufffd and half a pair ? and 100 % {of} it's 'here' \\"


def test_settling_nothing_is_nothing(database: Database) -> None:
    assert database.settle(uuid4(), {}).applied == 0
