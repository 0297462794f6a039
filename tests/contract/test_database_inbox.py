"""What every database promises about the inbox's insert-first: one body for all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from django_outbox.databases import Database
from django_outbox.models import ProcessedMessage
from tests.support.isolation import isolation
from tests.support.threads import elsewhere, wait_until

__all__ = ["isolation"]

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

LONG = 60.0
BOTH_LEVELS = pytest.mark.parametrize(
    "isolation", ["read committed", "repeatable read"], indirect=True
)


def row(message_id: UUID) -> dict[str, object]:
    return {
        "message_id": message_id,
        "topic": "invoice.issued",
        "aggregate_type": "invoice",
        "aggregate_id": "7",
        "sequence": 3,
    }


def insert(database: Database, *ids: UUID, consumer: str = "ledger") -> set[UUID]:
    with transaction.atomic():
        return database.insert_new(consumer, [row(message_id) for message_id in ids])


def test_what_is_new_is_written_and_named(database: Database) -> None:
    first, second = uuid4(), uuid4()
    assert insert(database, first) == {first}
    assert insert(database, second) == {second}
    stored = ProcessedMessage.objects.get(message_id=first)
    assert (stored.consumer, stored.topic) == ("ledger", "invoice.issued")
    assert (stored.aggregate_type, stored.aggregate_id, stored.sequence) == ("invoice", "7", 3)
    assert (
        abs(
            (
                stored.processed_at - ProcessedMessage.objects.get(message_id=second).processed_at
            ).total_seconds()
        )
        < LONG
    )


def test_what_is_known_is_left_out_and_the_transaction_goes_on(database: Database) -> None:
    known, fresh, later = uuid4(), uuid4(), uuid4()
    insert(database, known)
    with transaction.atomic():
        assert database.insert_new("ledger", [row(known)]) == set()
        assert database.insert_new("ledger", [row(known), row(fresh)]) == {fresh}
        assert database.insert_new("ledger", [row(fresh), row(known)]) == set()
        assert database.insert_new("ledger", [row(later)]) == {later}
    assert ProcessedMessage.objects.count() == 3


def test_each_consumer_has_an_inbox_of_its_own(database: Database) -> None:
    message_id = uuid4()
    assert insert(database, message_id, consumer="ledger") == {message_id}
    assert insert(database, message_id, consumer="mailer") == {message_id}
    assert insert(database, message_id, consumer="mailer") == set()


def test_a_message_twice_in_one_call_is_new_once(database: Database) -> None:
    message_id, other = uuid4(), uuid4()
    assert insert(database, message_id, other, message_id) == {message_id, other}
    assert ProcessedMessage.objects.count() == 2


def test_only_the_message_id_is_needed(database: Database) -> None:
    message_id = uuid4()
    with transaction.atomic():
        assert database.insert_new("ledger", [{"message_id": message_id}]) == {message_id}
    stored = ProcessedMessage.objects.get()
    assert (stored.topic, stored.aggregate_type, stored.sequence) == ("", "", None)


def test_no_rows_are_no_work(database: Database) -> None:
    assert insert(database) == set()


def test_thousands_are_told_apart(database: Database) -> None:
    ids = [uuid4() for _ in range(2500)]
    insert(database, *ids[::2])
    assert insert(database, *ids) == set(ids[1::2])


def test_the_caller_s_savepoint_takes_it_back(database: Database) -> None:
    message_id = uuid4()
    with transaction.atomic():
        with transaction.atomic():
            database.insert_new("ledger", [row(message_id), row(uuid4())])
            transaction.set_rollback(True)
        assert database.insert_new("ledger", [row(message_id)]) == {message_id}


class First:
    """The transaction that has inserted and not ended yet."""

    def __init__(self, database: Database, ids: Sequence[UUID]) -> None:
        self.inserted, self.end, self.commit = threading.Event(), threading.Event(), True
        self._database, self._ids = database, ids

    def run(self) -> None:
        with transaction.atomic():
            self._database.insert_new("ledger", [row(message_id) for message_id in self._ids])
            self.inserted.set()
            assert self.end.wait(LONG)
            if not self.commit:
                transaction.set_rollback(True)


def somebody_waits(vendor: str, many: int) -> bool:
    with connection.cursor() as cursor:
        if vendor == "postgresql":
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        else:
            cursor.execute(
                "SELECT count(*) FROM information_schema.innodb_trx"
                " WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%processedmessage%'"
            )
        return int(cursor.fetchone()[0]) >= many


@BOTH_LEVELS
@pytest.mark.parametrize("commits", [True, False])
def test_concurrent_duplicates_wait_for_the_first(
    database: Database, isolation: str, commits: bool
) -> None:
    """Not new if it commits. If it rolls back, new for exactly one of those who waited."""
    # InnoDB makes a deadlock of several that wait for one that rolls back: see below.
    waiting = 1 if database.vendor == "mysql" and not commits else 3
    message_id = uuid4()
    first = First(database, [message_id])
    running = elsewhere(first.run)
    assert first.inserted.wait(LONG)
    others: list[Future[set[UUID]]] = []
    if database.vendor == "sqlite":
        # Its writers wait for the whole transaction, before they can even begin.
        first.commit = commits
        first.end.set()
        running.result(LONG)
        others = [elsewhere(lambda: insert(database, message_id)) for _ in range(waiting)]
    else:
        others = [elsewhere(lambda: insert(database, message_id)) for _ in range(waiting)]
        # InnoDB renews what it shows only when nobody has asked for a tenth of a second.
        wait_until(lambda: somebody_waits(database.vendor, waiting), "they wait", every=0.2)
        assert not any(other.done() for other in others)
        first.commit = commits
        first.end.set()
        running.result(LONG)
    results = [other.result(LONG) for other in others]
    assert sorted(map(len, results)) == ([0] * waiting if commits else [0] * (waiting - 1) + [1])
    assert ProcessedMessage.objects.count() == 1


@BOTH_LEVELS
def test_concurrent_batches_of_the_same_messages_are_each_new_once(
    database: Database, isolation: str
) -> None:
    ids = sorted(uuid4() for _ in range(40))
    running = [elsewhere(lambda: insert(database, *ids)) for _ in range(4)]
    news = [future.result(LONG) for future in running]
    assert sum(map(len, news)) == 40
    assert set().union(*news) == set(ids)
