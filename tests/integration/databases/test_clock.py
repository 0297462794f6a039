"""The database's clock decides, whatever zones the session, the server and the project are set to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from django_outbox.batches import Published, Retry
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage, ProcessedMessage
from tests.support.rows import LIMITS, new_message, write

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

LONG = 60.0


def use(options: dict[str, Any]) -> None:
    """Give the connections that are opened from here on these OPTIONS as well."""
    settings = connections.settings["default"]
    merged = {**settings, "OPTIONS": {**settings.get("OPTIONS", {}), **options}}
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = merged


@pytest.fixture(params=["UTC", "session in Kathmandu", "project in Kathmandu without USE_TZ"])
def zones(request: pytest.FixtureRequest, database: Database, settings: Any) -> Iterator[None]:
    if request.param == "session in Kathmandu":
        if database.vendor == "mysql":
            use({"init_command": "SET time_zone = '+05:45'"})
        elif database.vendor == "postgresql":
            use({"options": "-c TimeZone=Asia/Kathmandu"})
    elif request.param != "UTC":
        settings.USE_TZ = False
        settings.TIME_ZONE = "Asia/Kathmandu"
        use({})
    yield
    connection.close()


def seconds_from_now(value: datetime) -> float:
    return abs((value - datetime.now(UTC)).total_seconds())


def test_what_is_due_is_due_in_every_zone(database: Database, zones: None) -> None:
    now = timezone.now()
    past = new_message(available_at=now - timedelta(minutes=1))
    soon = new_message(available_at=now + timedelta(minutes=30))
    delayed = new_message(delay=timedelta(minutes=30))
    at_once = new_message()
    write(database, past, soon, delayed, at_once)
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    assert {claimed.message.id for claimed in batch.claimed} == {
        past.message_id,
        at_once.message_id,
    }
    for claimed in batch.claimed:
        assert claimed.message.created_at is not None
        assert seconds_from_now(claimed.message.created_at) < LONG
    wait = database.seconds_until_due(LIMITS)
    assert wait is not None
    assert wait == pytest.approx(1800, abs=LONG)
    first, second = (claimed.row_id for claimed in batch.claimed)
    verdicts = {first: Published(), second: Retry(timedelta(minutes=10), "x")}
    assert database.settle(batch.token, verdicts).applied == 2
    wait = database.seconds_until_due(LIMITS)
    assert wait == pytest.approx(600, abs=LONG)
    assert OutboxMessage.objects.due().count() == 0


def test_a_row_written_past_us_has_the_same_clock(database: Database, zones: None) -> None:
    OutboxMessage.objects.create(message_id=new_message().message_id, topic="a.b", payload={})
    assert database.backlog_is_due(LIMITS)
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    [claimed] = batch.claimed
    assert claimed.message.created_at is not None
    assert seconds_from_now(claimed.message.created_at) < LONG
    assert OutboxMessage.objects.in_flight().count() == 1


def test_what_is_returned_is_what_django_loads(database: Database, zones: None) -> None:
    for rows in ([new_message()], [new_message(), new_message(delay=timedelta(hours=1))]):
        for message_id, inserted in write(database, *rows).items():
            stored = OutboxMessage.objects.get(message_id=message_id)
            assert (inserted.available_at, inserted.created_at) == (
                stored.available_at,
                stored.created_at,
            )


def test_the_inbox_has_the_same_clock(database: Database, zones: None) -> None:
    first, second = new_message().message_id, new_message().message_id
    ProcessedMessage.objects.create(consumer="ledger", message_id=first)
    database.insert_new("ledger", [{"message_id": second}])
    stored = {row.message_id: row.processed_at for row in ProcessedMessage.objects.all()}
    assert abs((stored[first] - stored[second]).total_seconds()) < LONG
