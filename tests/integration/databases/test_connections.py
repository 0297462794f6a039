"""Connections that projects set up in other ways: prepared statements, a pool, autocommit off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import DatabaseError, connection, transaction

from django_outbox.batches import Published
from django_outbox.databases import Database
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from tests.conftest import EVERY_DATABASE
from tests.support.aliases import set_up
from tests.support.rows import LIMITS, new_message, write


@contextmanager
def pooled() -> Iterator[None]:
    pytest.importorskip("psycopg_pool")
    with set_up(OPTIONS={"pool": {"min_size": 1, "max_size": 1}}):
        try:
            yield
        finally:
            connection.close()
            connection.close_pool()


@pytest.mark.parametrize("server_side_binding", [False, True])
def test_every_statement_of_a_relay_can_be_prepared(
    database: Database, server_side_binding: bool
) -> None:
    write(database, *(new_message(aggregate=("t", "1")) for _ in range(4)))
    with set_up(
        OPTIONS={"prepare_threshold": 0, "server_side_binding": server_side_binding},
    ):
        for _ in range(4):
            batch = database.claim(replace(LIMITS, rows=1), "host:1")
            assert batch is not None
            verdicts = {row.row_id: Published() for row in batch.claimed}
            assert database.settle(batch.token, verdicts).applied == 1
        assert database.seconds_until_due(LIMITS) is None


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_without_autocommit_nothing_is_claimed_rather_than_published_for_ever(
    database: Database,
) -> None:
    write(database, new_message())
    with set_up(AUTOCOMMIT=False), pytest.raises(ImproperlyConfiguredOutbox, match="AUTOCOMMIT"):
        database.claim(LIMITS, "host:1")
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    assert batch.claimed[0].attempts == 1


def test_a_pool_gets_nothing_of_what_a_listener_has_set(database: Database) -> None:
    with pooled():
        listener = database.listener()
        assert listener.prepare()
        listener.close()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('lock_timeout'), count(*) FROM pg_locks"
                " WHERE locktype = 'advisory'"
            )
            assert cursor.fetchone() == ("0", 0)
            cursor.execute("SELECT count(*) FROM pg_listening_channels()")
            assert cursor.fetchone() == (0,)


def test_a_pool_does_not_keep_the_lock_of_work_that_broke_off(database: Database) -> None:
    def break_off() -> None:
        with transaction.atomic(), database.one_at_a_time("prune") as mine:
            assert mine
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM no_such_table")

    with pooled():
        with pytest.raises(DatabaseError, match="no_such_table"):
            break_off()
        connection.close()
    with database.one_at_a_time("prune") as mine:
        assert mine
