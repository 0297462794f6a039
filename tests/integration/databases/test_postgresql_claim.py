"""What only PostgreSQL can do for a claim, and what its planner must not do to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import Error, connection, transaction

from django_outbox.batches import Limits, Published
from django_outbox.databases import Database, postgresql
from django_outbox.databases.errors import is_disconnect
from django_outbox.topics import EVERY_TOPIC
from tests.support.rows import LIMITS, new_message, write
from tests.support.threads import elsewhere

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)

LONG = 60.0


def test_without_any_order_no_relay_waits_for_another(database: Database) -> None:
    loose = Limits(rows=5, bytes=LIMITS.bytes, lease=LIMITS.lease, unordered=EVERY_TOPIC)
    write(database, *(new_message() for _ in range(10)))
    with transaction.atomic(), connection.cursor() as cursor:
        key = postgresql.lock_key(database._oid(), postgresql.CLAIM_LOCK)  # type: ignore[attr-defined]
        cursor.execute(f"SELECT pg_advisory_xact_lock({key})")
        batch = elsewhere(lambda: database.claim(loose, "host:1")).result(LONG)
    assert batch is not None
    assert len(batch) == 5


def test_a_relay_that_freezes_in_its_claim_is_thrown_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "CLAIM_LOCK_TIMEOUT", 1)
    write(database, new_message())
    stopped, thawed = threading.Event(), threading.Event()

    def freeze(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if "SET lease_token" in sql:
            stopped.set()
            assert thawed.wait(LONG)
        return result

    def frozen() -> Error | None:
        try:
            with connection.execute_wrapper(freeze):
                database.claim(LIMITS, "frozen")
        except Error as error:
            return error
        return None

    freezing = elsewhere(frozen)
    assert stopped.wait(LONG)
    deadline = time.monotonic() + LONG
    try:
        while not (batch := database.claim(LIMITS, "other")):
            assert time.monotonic() < deadline
    finally:
        thawed.set()
    assert len(batch) == 1
    error = freezing.result(LONG)
    assert error is not None
    assert is_disconnect(error)


def test_a_claim_does_not_wait_for_the_disk_and_a_settle_does(database: Database) -> None:
    write(database, new_message())
    seen: list[tuple[str, str]] = []

    def look(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        for what in ("SET lease_token", "SET status"):
            if what in sql:
                with context["connection"].connection.cursor() as cursor:
                    cursor.execute("SHOW synchronous_commit")
                    seen.append((what, *cursor.fetchone()))
        return result

    with connection.execute_wrapper(look):
        batch = database.claim(LIMITS, "host:1")
        assert batch is not None
        database.settle(batch.token, {batch.claimed[0].row_id: Published()})
    assert seen == [("SET lease_token", "off"), ("SET status", "on")]
