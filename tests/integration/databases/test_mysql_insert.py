"""MySQL has no INSERT … RETURNING: what it takes there, on MariaDB told to do without."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox.databases import Database
from django_outbox.models import OutboxMessage
from tests.support.rows import new_message, write

pytestmark = pytest.mark.parametrize("database", ["mysql"], indirect=True)


@pytest.fixture(autouse=True)
def without_returning(database: Database) -> None:
    connection.ensure_connection()
    connection.features.__dict__["can_return_columns_from_insert"] = False


@pytest.mark.parametrize("count", [1, 3])
def test_the_result_is_read_back_in_a_second_statement(database: Database, count: int) -> None:
    rows = [new_message() for _ in range(count)]
    with transaction.atomic(), CaptureQueriesContext(connections["default"]) as queries:
        inserted = database.insert_messages(rows)
    assert len(queries) == 2
    for stored in OutboxMessage.objects.all():
        got = inserted[stored.message_id]
        assert tuple(got) == (stored.id, stored.available_at, stored.created_at)
    assert len(inserted) == count


def test_a_known_message_id_is_left_out(database: Database) -> None:
    known, fresh = new_message(), new_message()
    write(database, known)
    again = new_message(message_id=UUID(str(known.message_id)))
    with transaction.atomic():
        assert database.insert_messages([again, fresh]).keys() == {fresh.message_id}
        assert database.insert_messages([again]) == {}
    assert OutboxMessage.objects.count() == 2
