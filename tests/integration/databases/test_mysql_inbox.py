"""Where InnoDB cannot keep the inbox's promise, it says so with an error that may be retried."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction

from django_outbox.databases import Database
from django_outbox.databases.errors import is_retryable
from django_outbox.models import ProcessedMessage
from tests.support.threads import elsewhere, wait_until

pytestmark = pytest.mark.parametrize("database", ["mysql"], indirect=True)

LONG = 60.0


def waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM information_schema.innodb_trx"
            " WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%processedmessage%'"
        )
        return int(cursor.fetchone()[0])


def test_of_many_that_wait_for_a_rollback_one_goes_on_and_none_is_wrong(database: Database) -> None:
    rows = [{"message_id": uuid4()}]
    inserted, end = threading.Event(), threading.Event()

    def first() -> None:
        with transaction.atomic():
            database.insert_new("ledger", rows)
            inserted.set()
            assert end.wait(LONG)
            transaction.set_rollback(True)

    def other() -> int | str:
        try:
            with transaction.atomic():
                return len(database.insert_new("ledger", rows))
        except OperationalError as error:
            return "retry" if is_retryable(error) else repr(error)

    running = elsewhere(first)
    assert inserted.wait(LONG)
    others = [elsewhere(other) for _ in range(3)]
    # InnoDB renews what it shows only when nobody has asked for a tenth of a second.
    wait_until(lambda: waiting() == 3, "all three wait", every=0.2)
    end.set()
    running.result(LONG)
    results = [future.result(LONG) for future in others]
    assert results.count(1) == 1
    assert set(results) <= {0, 1, "retry"}
    assert ProcessedMessage.objects.count() == 1
    assert other() == 0
