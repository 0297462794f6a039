"""Errors of real databases, sorted into what may be retried and what means the connection is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import Error, IntegrityError, ProgrammingError, connection, connections, transaction

from django_outbox.databases import Database
from django_outbox.databases.errors import is_disconnect, is_retryable, is_unmigrated, may_pass
from django_outbox.models import OutboxMessage
from tests.support.isolation import isolation
from tests.support.rows import LIMITS, new_message, write
from tests.support.threads import elsewhere

__all__ = ["isolation"]

EVERYWHERE = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)
SERVERS = pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
LONG = 60.0


def error_of(work: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        work()
    return caught.value


def kind(error: Error) -> str:
    """What becomes of it: exactly one of the three."""
    if is_retryable(error):
        return "both" if is_disconnect(error) else "retry"
    return "gone" if is_disconnect(error) else "neither"


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@EVERYWHERE
def test_mistakes_are_neither(database: Database) -> None:
    message = new_message()
    write(database, message)
    broken = error_of(lambda: run("SELECT no_such_column FROM django_outbox_outboxmessage"))
    assert kind(broken) == "neither"
    twice = error_of(
        lambda: OutboxMessage.objects.create(message_id=message.message_id, topic="a", payload={})
    )
    assert isinstance(twice, IntegrityError)
    assert kind(twice) == "neither"
    assert not is_retryable(ValueError("deadlock"))
    assert not is_disconnect(ValueError("gone away"))


@SERVERS
def test_a_deadlock_may_be_retried(database: Database) -> None:
    rows = [new_message() for _ in range(2)]
    write(database, *rows)
    ids = list(OutboxMessage.objects.order_by("id").values_list("id", flat=True))
    both_have_one = threading.Barrier(2, timeout=LONG)

    def cross(first: int, second: int) -> Error | None:
        try:
            with transaction.atomic():
                OutboxMessage.objects.filter(id=first).update(leased_by="x")
                both_have_one.wait()
                OutboxMessage.objects.filter(id=second).update(leased_by="x")
        except Error as error:
            return error
        return None

    running = [elsewhere(lambda: cross(*ids)), elsewhere(lambda: cross(*reversed(ids)))]
    [error] = [error for future in running if (error := future.result(LONG)) is not None]
    assert kind(error) == "retry"


@SERVERS
def test_a_lock_that_is_not_had_in_time_may_be_retried(database: Database) -> None:
    write(database, new_message())
    limit = {
        "postgresql": "SET lock_timeout = '50ms'",
        "mysql": "SET innodb_lock_wait_timeout = 1",
    }[database.vendor]

    def wait() -> Error:
        run(limit)
        return error_of(lambda: OutboxMessage.objects.update(leased_by="x"))

    with transaction.atomic():
        list(OutboxMessage.objects.select_for_update())
        assert kind(elsewhere(wait).result(LONG)) == "retry"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"], indirect=True)
def test_a_serialization_failure_may_be_retried(database: Database, isolation: str) -> None:
    write(database, new_message())

    def conflict() -> None:
        with transaction.atomic():
            OutboxMessage.objects.get()
            elsewhere(lambda: OutboxMessage.objects.update(leased_by="x")).result(LONG)
            OutboxMessage.objects.update(leased_by="y")

    assert kind(error_of(conflict)) == "retry"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_locked_database_may_be_retried(database: Database) -> None:
    def write_impatiently() -> Error:
        run("PRAGMA busy_timeout = 10")
        return error_of(lambda: write(database, new_message()))

    with transaction.atomic():
        run("DELETE FROM django_outbox_outboxmessage")
        assert kind(elsewhere(write_impatiently).result(LONG)) == "retry"


def kill(vendor: str, session: int) -> None:
    run(f"SELECT pg_terminate_backend({session})" if vendor == "postgresql" else f"KILL {session}")


def session_id(vendor: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_backend_pid()" if vendor == "postgresql" else "SELECT connection_id()"
        )
        return int(cursor.fetchone()[0])


@SERVERS
def test_a_connection_that_the_server_ended_is_gone(database: Database) -> None:
    session = session_id(database.vendor)
    elsewhere(lambda: kill(database.vendor, session)).result(LONG)
    assert kind(error_of(lambda: database.claim(LIMITS, "host:1"))) == "gone"
    database.refresh_connection()
    assert database.claim(LIMITS, "host:1") is None


@SERVERS
def test_a_connection_that_ends_within_a_transaction_is_gone(database: Database) -> None:
    write(database, new_message())

    def lose_it() -> None:
        with transaction.atomic():
            OutboxMessage.objects.update(leased_by="x")
            session = session_id(database.vendor)
            elsewhere(lambda: kill(database.vendor, session)).result(LONG)
            OutboxMessage.objects.update(leased_by="y")

    assert kind(error_of(lose_it)) == "gone"
    connection.close()
    assert OutboxMessage.objects.get().leased_by == ""


@SERVERS
def test_a_server_that_does_not_answer_is_gone(database: Database) -> None:
    answering = connections.settings["default"]
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = {**answering, "PORT": "1"}
    try:
        assert kind(error_of(lambda: database.claim(LIMITS, "host:1"))) == "gone"
    finally:
        del connections["default"]
        connections.settings["default"] = answering


@SERVERS
def test_a_standby_is_as_good_as_gone(database: Database) -> None:
    def write_to_a_standby() -> None:
        with transaction.atomic():
            run("SET TRANSACTION READ ONLY")
            OutboxMessage.objects.update(leased_by="x")

    assert kind(error_of(write_to_a_standby)) == "gone"


@SERVERS
def test_a_statement_that_the_server_gives_up_may_pass(database: Database) -> None:
    """As it does with a time-out for all statements of a role, while it is busy."""
    if database.vendor == "postgresql":
        impatient, long = "SET statement_timeout = '10ms'", "SELECT pg_sleep(60)"
    else:
        # MariaDB's SLEEP() would return early instead.
        impatient = "SET max_statement_time = 0.01"
        long = "SELECT count(*) FROM seq_1_to_1000000 AS a, seq_1_to_1000000 AS b"
    run(impatient)
    error = error_of(lambda: run(long))
    connection.close()
    assert kind(error) == "neither"
    assert may_pass(error)


@EVERYWHERE
def test_what_migrations_would_have_made_is_told_from_other_mistakes(database: Database) -> None:
    assert is_unmigrated(error_of(lambda: run("SELECT 1 FROM no_such_table")))
    assert is_unmigrated(error_of(lambda: run("UPDATE testapp_balance SET no_such_column = 1")))
    mistake = error_of(lambda: run("SELECT FROM WHERE"))
    assert not is_unmigrated(mistake)
    assert not may_pass(mistake)


@EVERYWHERE
def test_a_wrong_statement_is_not_run_again(database: Database) -> None:
    runs = []

    def work() -> None:
        runs.append(1)
        run("SELECT no_such_column FROM django_outbox_outboxmessage")

    error = error_of(lambda: database.retrying(work))
    assert isinstance(error, (ProgrammingError, Error))
    assert len(runs) == 1


@SERVERS
def test_what_the_database_took_back_is_run_again(database: Database) -> None:
    """A settle that waits too long for a row of somebody else's goes through in the end."""
    write(database, new_message())
    failures: list[Error] = []

    def work() -> int:
        try:
            with database.transaction() as cursor:
                cursor.execute(
                    "SET LOCAL lock_timeout = '50ms'"
                    if database.vendor == "postgresql"
                    else "SET innodb_lock_wait_timeout = 1"
                )
                return OutboxMessage.objects.update(leased_by="done")
        except Error as error:
            failures.append(error)
            let_go.set()
            raise

    locked, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            list(OutboxMessage.objects.select_for_update())
            locked.set()
            assert let_go.wait(LONG)

    holding = elsewhere(hold)
    assert locked.wait(LONG)
    assert database.retrying(work) == 1
    holding.result(LONG)
    assert len(failures) >= 1
    assert OutboxMessage.objects.get().leased_by == "done"
