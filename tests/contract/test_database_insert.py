"""What every database promises about writing messages: one body for all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox.databases import Database
from django_outbox.models import OutboxMessage
from tests.support.rows import new_message, write

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)


@pytest.mark.parametrize("count", [1, 3])
def test_the_result_is_what_the_database_filled_in(database: Database, count: int) -> None:
    rows = [new_message() for _ in range(count)]
    inserted = write(database, *rows)
    stored = {row.message_id: row for row in OutboxMessage.objects.all()}
    assert inserted.keys() == stored.keys() == {row.message_id for row in rows}
    for message_id, row in stored.items():
        got = inserted[message_id]
        assert (got.row_id, got.available_at, got.created_at) == (
            row.id,
            row.available_at,
            row.created_at,
        )
    assert [inserted[row.message_id].row_id for row in rows] == sorted(
        row.id for row in stored.values()
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_known_message_id_is_left_out_and_the_transaction_goes_on(
    database: Database, count: int
) -> None:
    known = new_message(payload='{"first": true}')
    write(database, known)
    again = new_message(message_id=known.message_id)
    fresh = [new_message() for _ in range(count - 1)]
    with transaction.atomic():
        inserted = database.insert_messages([again, *fresh])
        assert inserted.keys() == {row.message_id for row in fresh}
        last = new_message()
        assert database.insert_messages([last]).keys() == {last.message_id}
    assert OutboxMessage.objects.count() == 1 + count
    assert OutboxMessage.objects.get(message_id=known.message_id).payload == {"first": True}


def test_of_one_message_id_written_twice_the_first_wins(database: Database) -> None:
    first = new_message(topic="first.one")
    second = new_message(topic="second.one", message_id=first.message_id)
    other = new_message()
    inserted = write(database, first, other, second)
    assert inserted.keys() == {first.message_id, other.message_id}
    assert OutboxMessage.objects.get(message_id=first.message_id).topic == "first.one"


def test_a_delay_is_added_to_the_database_s_clock(database: Database) -> None:
    delayed, at_once = new_message(delay=timedelta(hours=2)), new_message()
    fixed = new_message(available_at=datetime(2100, 1, 2, 3, 4, 5, 678900, tzinfo=UTC))
    for rows in ([delayed], [at_once], [fixed]):
        write(database, *rows)
    alone = {row.message_id: row for row in OutboxMessage.objects.all()}
    for row, seconds in ((delayed, 7200), (at_once, 0)):
        stored = alone[row.message_id]
        assert (stored.available_at - stored.created_at).total_seconds() == pytest.approx(
            seconds, abs=0.01
        )
    assert alone[fixed.message_id].available_at == fixed.available_at


def test_due_times_differ_within_one_statement(database: Database) -> None:
    rows = [
        new_message(),
        new_message(delay=timedelta(minutes=1)),
        new_message(available_at=datetime(2100, 1, 2, tzinfo=UTC)),
    ]
    write(database, *rows)
    stored = {row.message_id: row for row in OutboxMessage.objects.all()}
    first, second, third = (stored[row.message_id] for row in rows)
    assert (first.available_at - first.created_at).total_seconds() == pytest.approx(0, abs=0.01)
    assert (second.available_at - first.created_at).total_seconds() == pytest.approx(60, abs=0.01)
    assert third.available_at == rows[2].available_at


def test_ten_thousand_messages_are_ten_statements(database: Database) -> None:
    rows = [new_message() for _ in range(10_000)]
    with transaction.atomic(), CaptureQueriesContext(connections["default"]) as queries:
        inserted = database.insert_messages(rows)
    assert len(inserted) == 10_000
    assert len(queries) == 10
    ids = [inserted[row.message_id].row_id for row in rows]
    assert ids == sorted(ids)


def test_one_message_is_one_statement(database: Database) -> None:
    with transaction.atomic(), CaptureQueriesContext(connections["default"]) as queries:
        database.insert_messages([new_message()])
    assert len(queries) == 1


def test_any_text_and_number_is_stored_as_it_is(database: Database) -> None:
    odd = "%s {x} \\ \" ' ; , {a,b} NULL ü 漢 😀 \n\t"
    rows = [
        new_message(
            payload='{"text": "\\u00fc \\" % {} \\\\ 😀", "big": 12345678901234567890.5}',
            headers={"h": odd, "n": None, "b": True, "i": -(2**62), "f": 1.5},
            aggregate=(odd, odd),
            correlation_id=odd,
            causation_id="",
            sequence=sequence,
        )
        for sequence in (-(2**63), 2**63 - 1, None)
    ]
    write(database, *rows[:1])
    write(database, *rows[1:])
    for row in rows:
        stored = OutboxMessage.objects.get(message_id=row.message_id)
        assert (stored.aggregate_type, stored.aggregate_id, stored.correlation_id) == (odd,) * 3
        assert stored.sequence == row.sequence
        assert stored.headers == {"h": odd, "n": None, "b": True, "i": -(2**62), "f": 1.5}
        assert stored.payload["text"] == 'ü " % {} \\ 😀'


def test_another_error_than_a_known_message_id_is_raised(database: Database) -> None:
    if database.vendor == "sqlite":
        error, row = IntegrityError, new_message(payload="no json")
    else:
        error, row = (DataError, OperationalError, IntegrityError), new_message(payload="no json")
    with pytest.raises(error), transaction.atomic():
        database.insert_messages([row])
    assert OutboxMessage.objects.count() == 0
    with pytest.raises(error), transaction.atomic():
        database.insert_messages([new_message(), row])
    assert OutboxMessage.objects.count() == 0


def test_rows_go_with_the_transaction_that_is_rolled_back(database: Database) -> None:
    with transaction.atomic():
        kept = new_message()
        database.insert_messages([kept])
        try:
            with transaction.atomic():
                database.insert_messages([new_message(message_id=uuid4())])
                raise LookupError
        except LookupError:
            pass
    assert list(OutboxMessage.objects.values_list("message_id", flat=True)) == [kept.message_id]
