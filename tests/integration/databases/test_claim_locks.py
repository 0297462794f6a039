"""Who waits for whom while relays claim, on the databases with more than one writer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pytest
from django.db import connection, transaction

from django_outbox.batches import Limits, Published
from django_outbox.databases import Database, base, mysql, postgresql
from django_outbox.models import OutboxMessage
from tests.support.isolation import isolation
from tests.support.rows import LIMITS, new_message, write
from tests.support.threads import elsewhere

__all__ = ["isolation"]

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)

T = TypeVar("T")

LONG = 60.0
BOTH_LEVELS = pytest.mark.parametrize(
    "isolation", ["read committed", "repeatable read"], indirect=True
)


@dataclass
class Held(Generic[T]):
    """Work in another thread that stops after a statement, with its locks, until told to go on."""

    work: Callable[[], T]
    after: str
    stopped: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def run(self) -> T:
        with connection.execute_wrapper(self._stop):
            return self.work()

    def _stop(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        result = execute(sql, params, many, context)
        if self.after in sql:
            self.stopped.set()
            assert self.go_on.wait(LONG)
        return result


@contextmanager
def held(work: Callable[[], T], after: str) -> Iterator[tuple[Held[T], Future[T]]]:
    holding = Held(work, after)
    running = elsewhere(holding.run)
    try:
        assert holding.stopped.wait(LONG)
        yield holding, running
    finally:
        holding.go_on.set()
        running.result(LONG)


def held_claim(database: Database) -> AbstractContextManager[tuple[Held[Any], Future[Any]]]:
    """A claim that stops with its leases written, before its transaction commits."""
    return held(lambda: database.claim(LIMITS, "first"), after="SET lease_token")


def somebody_waits_for_the_claim_lock(vendor: str) -> bool:
    with connection.cursor() as cursor:
        if vendor == "postgresql":
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        else:
            cursor.execute(
                "SELECT count(*) FROM information_schema.processlist"
                " WHERE state = 'User lock' AND db = database()"
            )
        return bool(cursor.fetchone()[0])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_rows_that_somebody_works_on_are_passed_over_without_waiting(database: Database) -> None:
    write(database, *(new_message() for _ in range(6)))
    with transaction.atomic():
        locked = list(OutboxMessage.objects.select_for_update().order_by("id")[:2])
        batch = elsewhere(lambda: database.claim(LIMITS, "other")).result(LONG)
    assert batch is not None
    assert len(batch) == 4
    assert not {claimed.row_id for claimed in batch.claimed} & {row.id for row in locked}


@BOTH_LEVELS
def test_a_claim_sees_the_leases_of_the_claim_it_waited_for(
    database: Database, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "TRANSACTION_ATTEMPTS", 1)
    write(database, new_message(aggregate=("t", "a"), payload='"a1"'))
    with held_claim(database) as (claiming, _running):
        write(
            database,
            new_message(aggregate=("t", "a"), payload='"a2"'),
            new_message(aggregate=("t", "b"), payload='"b1"'),
        )
        second = elsewhere(lambda: database.claim(LIMITS, "second"))
        until(lambda: somebody_waits_for_the_claim_lock(database.vendor))
        claiming.go_on.set()
        batch = second.result(LONG)
    assert batch is not None
    assert [claimed.message.payload for claimed in batch.claimed] == ["b1"]


@BOTH_LEVELS
def test_the_clock_is_read_after_the_wait_for_the_lock(database: Database, isolation: str) -> None:
    write(database, new_message())
    with held_claim(database) as (claiming, _running):
        second = elsewhere(lambda: database.claim(LIMITS, "second"))
        until(lambda: somebody_waits_for_the_claim_lock(database.vendor))
        write(database, new_message())
        claiming.go_on.set()
        batch = second.result(LONG)
    assert batch is not None, "a row that came due during the wait was not seen"


@BOTH_LEVELS
def test_producers_never_wait_for_a_claim(database: Database, isolation: str) -> None:
    write(database, *(new_message() for _ in range(20)))
    with held_claim(database) as (_held, running):
        write(database, *(new_message() for _ in range(3)))
        assert not running.done()
    assert OutboxMessage.objects.filter(lease_token=None).count() == 3


@BOTH_LEVELS
def test_producers_never_wait_for_a_settle(database: Database, isolation: str) -> None:
    write(database, *(new_message() for _ in range(20)))
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    verdicts = {claimed.row_id: Published() for claimed in batch.claimed}
    settling = held(lambda: database.settle(batch.token, verdicts), after="SET status")
    with settling as (_held, running):
        write(database, *(new_message() for _ in range(3)))
        assert not running.done()
    assert OutboxMessage.objects.pending().count() == 3


@BOTH_LEVELS
def test_a_backlog_is_shared_by_two_relays(database: Database, isolation: str) -> None:
    write(database, *(new_message() for _ in range(300)))
    small = Limits(rows=10, bytes=LIMITS.bytes, lease=LIMITS.lease)
    first_turn = threading.Barrier(2, timeout=LONG)

    def relay() -> int:
        first_turn.wait()
        taken = 0
        while batch := database.claim(small, "host"):
            taken += len(batch)
        return taken

    shares = [running.result(LONG) for running in [elsewhere(relay), elsewhere(relay)]]
    assert sum(shares) == 300
    assert min(shares) > 0


def test_a_claim_gives_up_on_a_claim_that_never_ends(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (base, mysql, postgresql):
        monkeypatch.setattr(module, "CLAIM_LOCK_TIMEOUT", 1)
    write(database, new_message(), new_message())
    caplog.set_level(logging.WARNING, "django_outbox")
    holder = elsewhere_holding_the_claim_lock(database)
    try:
        assert database.claim(LIMITS, "second") is None
    finally:
        holder.set()
    assert "Another relay has been claiming for more than 1 s" in caplog.text
    until(lambda: database.claim(LIMITS, "second") is not None)


def elsewhere_holding_the_claim_lock(database: Database) -> threading.Event:
    """Hold the lock from a session that no time-out ends; set the event to let go."""
    let_go, held = threading.Event(), threading.Event()

    def hold() -> None:
        if database.vendor == "mysql":
            with database._named_lock("claim", 5) as mine:  # type: ignore[attr-defined]
                assert mine
                held.set()
                assert let_go.wait(LONG)
        else:
            with transaction.atomic(), connection.cursor() as cursor:
                key = postgresql.lock_key(database._oid(), postgresql.CLAIM_LOCK)  # type: ignore[attr-defined]
                cursor.execute(f"SELECT pg_advisory_xact_lock({key})")
                held.set()
                assert let_go.wait(LONG)

    elsewhere(hold)
    assert held.wait(LONG)
    return let_go
