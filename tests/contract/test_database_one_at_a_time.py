"""What every database promises about work that only one may do: one body for all of them."""

from __future__ import annotations

import contextlib
import threading

import pytest
from django.db import DatabaseError, connection, transaction

from django_outbox.databases import Database
from django_outbox.models import OutboxMessage
from tests.support.rows import new_message, write
from tests.support.threads import elsewhere

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

LONG = 60.0


def try_elsewhere(database: Database, name: str) -> bool:
    def attempt() -> bool:
        with database.one_at_a_time(name) as mine:
            return mine

    return elsewhere(attempt).result(LONG)


def test_only_one_does_the_named_work(database: Database) -> None:
    with database.one_at_a_time("prune") as mine:
        assert mine
        assert not try_elsewhere(database, "prune")
        assert try_elsewhere(database, "archive")
    assert try_elsewhere(database, "prune")


def test_who_did_not_get_it_does_not_end_it(database: Database) -> None:
    with database.one_at_a_time("prune") as mine:
        assert mine
        for _ in range(3):
            assert not try_elsewhere(database, "prune")


def test_it_lasts_across_transactions(database: Database) -> None:
    with database.one_at_a_time("prune") as mine:
        assert mine
        for _ in range(2):
            write(database, new_message())
            assert not try_elsewhere(database, "prune")
    assert OutboxMessage.objects.count() == 2


def test_an_error_ends_it(database: Database) -> None:
    with contextlib.suppress(LookupError), database.one_at_a_time("prune") as mine:
        assert mine
        raise LookupError
    assert try_elsewhere(database, "prune")


def test_a_broken_transaction_ends_it_and_keeps_the_error(database: Database) -> None:
    with pytest.raises(DatabaseError, match="no_such_table"):
        break_a_transaction(database)
    connection.close()
    assert try_elsewhere(database, "prune")


def break_a_transaction(database: Database) -> None:
    with transaction.atomic(), database.one_at_a_time("prune") as mine:
        assert mine
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM no_such_table")


def test_the_thread_that_dies_lets_go(database: Database) -> None:
    taken = threading.Event()

    def die() -> None:
        lock = database.one_at_a_time("prune")
        assert lock.__enter__()
        taken.set()
        connection.close()

    elsewhere(die).result(LONG)
    assert taken.is_set()
    assert try_elsewhere(database, "prune")
