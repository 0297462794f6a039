"""LISTEN and NOTIFY on PostgreSQL: only who sleeps is woken, and nobody sleeps through new rows."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection, transaction

from django_outbox.databases import Database
from django_outbox.databases.base import WorkListener
from django_outbox.models import OutboxMessage
from tests.support.rows import LIMITS, new_message, write
from tests.support.threads import elsewhere

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)

#: A bound for what should take milliseconds.
LONG = 30.0


@pytest.fixture
def listener(database: Database) -> Iterator[WorkListener]:
    made = database.listener()
    yield made
    made.close()


def test_a_sleeping_relay_is_woken_by_new_rows(database: Database, listener: WorkListener) -> None:
    assert listener.prepare()
    assert not database.backlog_is_due(LIMITS)
    writing = elsewhere(lambda: write(database, new_message()))
    assert listener.wait(LONG)
    writing.result(LONG)
    assert database.backlog_is_due(LIMITS)


def test_rows_of_another_program_wake_as_well(database: Database, listener: WorkListener) -> None:
    assert listener.prepare()
    OutboxMessage.objects.create(message_id=os.urandom(16).hex(), topic="a.b", payload={})
    assert listener.wait(LONG)


def test_many_rows_in_one_statement_wake_once(database: Database, listener: WorkListener) -> None:
    assert listener.prepare()
    write(database, *(new_message() for _ in range(100)))
    assert listener.wait(LONG)
    assert listener.prepare()
    assert not listener.wait(0.05)


def test_rows_that_are_rolled_back_wake_nobody(database: Database, listener: WorkListener) -> None:
    assert listener.prepare()
    with transaction.atomic():
        database.insert_messages([new_message()])
        transaction.set_rollback(True)
    assert not listener.wait(0.05)


def test_nobody_is_notified_while_nobody_sleeps(database: Database, listener: WorkListener) -> None:
    assert listener.prepare()
    listener.cancel()
    write(database, new_message())
    assert not listener.wait(0.1)


def test_an_open_transaction_that_did_not_notify_keeps_the_relay_from_sleeping(
    database: Database, listener: WorkListener
) -> None:
    with transaction.atomic():
        database.insert_messages([new_message()])
        assert listener.prepare() is False
    assert listener.prepare()
    assert database.backlog_is_due(LIMITS)


def test_the_second_sleeper_hears_what_wakes_the_first(
    database: Database, listener: WorkListener
) -> None:
    second = database.listener()
    try:
        assert listener.prepare()
        assert not second.prepare()
        write(database, new_message())
        assert second.wait(LONG)
        assert listener.wait(LONG)
    finally:
        second.close()


def test_a_readable_descriptor_ends_the_sleep(listener: WorkListener, database: Database) -> None:
    readable, writable = os.pipe()
    try:
        assert listener.prepare()
        os.write(writable, b"x")
        started = time.monotonic()
        assert not listener.wait(LONG, readable)
        assert time.monotonic() - started < LONG
        assert os.read(readable, 1) == b"x"
    finally:
        os.close(readable)
        os.close(writable)


def backend_pid(listener: WorkListener) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_advisory_lock%%' AND datname = current_database()"
        )
        [(pid,)] = cursor.fetchall()
    return int(pid)


def test_a_lost_connection_means_polling_and_then_listening_again(
    database: Database, listener: WorkListener, caplog: pytest.LogCaptureFixture
) -> None:
    assert listener.prepare()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [backend_pid(listener)])
    assert not listener.wait(0.2)
    assert [record.levelname for record in caplog.records if "Lost" in record.message] == [
        "WARNING"
    ]
    assert listener.prepare()
    write(database, new_message())
    assert listener.wait(LONG)


@pytest.mark.parametrize("each", [100, pytest.param(2000, marks=pytest.mark.deep)])
def test_no_wake_up_is_lost_whenever_writers_commit(database: Database, each: int) -> None:
    """The relay sleeps whenever it finds nothing, for good."""
    writers = 4
    stop = threading.Event()

    def produce(number: int) -> None:
        chance = random.Random(number)
        for _turn in range(each):
            with transaction.atomic():
                database.insert_messages([new_message()])
                if chance.random() < 0.02:
                    time.sleep(0.005)
            time.sleep(chance.expovariate(60))

    def relay() -> tuple[int, int, int]:
        done = sleeps = overslept = 0
        listener = database.listener()
        try:
            while done < writers * each and not stop.is_set():
                batch = database.claim(LIMITS, "relay")
                if batch is not None:
                    done += len(batch)
                    OutboxMessage.objects.filter(lease_token=batch.token).delete()
                    continue
                if not listener.prepare():
                    continue
                if database.backlog_is_due(LIMITS):
                    listener.cancel()
                    continue
                sleeps += 1
                if not listener.wait(LONG):
                    overslept += 1
        finally:
            listener.close()
        return done, sleeps, overslept

    relaying = elsewhere(relay)
    producing = [elsewhere(partial(produce, number)) for number in range(writers)]
    try:
        for producer in producing:
            producer.result(120)
        done, sleeps, overslept = relaying.result(2 * LONG)
    finally:
        stop.set()
    assert done == writers * each
    assert overslept == 0
    assert sleeps > 0
