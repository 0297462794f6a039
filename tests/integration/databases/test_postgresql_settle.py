"""How many turns to the server a settlement takes on PostgreSQL."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_outbox.batches import Dead, Published, Verdict
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage, Status
from tests.support.rows import LIMITS, new_message, write

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


def settled(database: Database, *verdicts: Verdict) -> list[str]:
    """The first words of what the server was told."""
    write(database, *(new_message() for _ in verdicts))
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    ids = [claimed.row_id for claimed in batch.claimed]
    with CaptureQueriesContext(connection) as queries:
        assert database.settle(batch.token, dict(zip(ids, verdicts, strict=True))).applied == len(
            ids
        )
    return [query["sql"].split()[0] for query in queries]


def test_one_verdict_for_all_is_one_statement_and_committed(database: Database) -> None:
    assert settled(database, Published(), Published()) == ["UPDATE"]
    connection.close()
    assert set(OutboxMessage.objects.values_list("status", flat=True)) == {Status.PUBLISHED}


def test_several_verdicts_are_one_transaction(database: Database) -> None:
    assert settled(database, Published(), Dead("TooLarge")) == [
        "BEGIN",
        "UPDATE",
        "UPDATE",
        "COMMIT",
    ]


def test_in_a_transaction_of_the_caller_it_is_taken_back_with_it(database: Database) -> None:
    with transaction.atomic():
        settled(database, Published())
        transaction.set_rollback(True)
    assert not OutboxMessage.objects.exists()
