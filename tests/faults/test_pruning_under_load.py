"""Two pruners, two relays and writers at once: nobody deadlocks, and nothing is lost."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.prune import Pruned, prune
from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import Stop
from django_outbox.testing import ScriptedPublisher
from tests.support.bulk_rows import fill, text
from tests.support.isolation import isolation
from tests.support.threads import Worker, wait_until

__all__ = ["isolation"]

WRITERS, RELAYS, PRUNERS = 2, 2, 2
LONG_AGO = timezone.now() - timedelta(days=60)
OLD = f"'{LONG_AGO:%Y-%m-%d %H:%M:%S}'"

everywhere = pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
at_both_levels = pytest.mark.parametrize(
    "isolation", ["read committed", "repeatable read"], indirect=True
)


def write(messages: int) -> list[object]:
    """As a service does: each event in a transaction of its own, three aggregates a writer."""
    ids = []
    for number in range(messages):
        with transaction.atomic():
            aggregate = ("t", f"{threading.get_ident()}-{number % 3}")
            ids.append(enqueue("invoice.issued", {"n": number}, aggregate=aggregate).message_id)
    return ids


def prune_until(stop: threading.Event) -> list[Pruned]:
    done = []
    while not stop.is_set():
        done.append(prune(chunk=200))
    return done


def deadlocks(database: Database) -> int:
    """How many PostgreSQL has resolved in this database; MariaDB counts those of all databases alike."""
    if database.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def run(
    database: Database, caplog: pytest.LogCaptureFixture, *, settled: int, messages: int
) -> None:
    fill(settled, text("n"), status="'published'", published_at=OLD, created_at=OLD)
    fill(settled // 100, text("n"), status="'discarded'", available_at=OLD, created_at=OLD)
    fill(50, text("n"), status="'dead'", available_at=OLD, created_at=OLD, last_error="'nack'")
    fill(50, text("n + 1000"), available_at="'2999-01-01 00:00:00'", created_at=OLD)
    before = deadlocks(database)
    caplog.set_level(logging.WARNING, logger="django_outbox")
    publisher, stop, over = ScriptedPublisher(), Stop(), threading.Event()
    relays = [Worker(Relay(publisher_for=lambda alias: publisher).run, stop) for _ in range(RELAYS)]
    pruners = [Worker(prune_until, over) for _ in range(PRUNERS)]
    try:
        written = [
            message_id
            for writer in [Worker(write, messages) for _ in range(WRITERS)]
            for message_id in writer.result()
        ]
        wait_until(
            lambda: len(publisher.received) >= len(written) and not remaining(), "all is done", 0.1
        )
    finally:
        over.set()
        stop.set()
    for relay in relays:
        relay.result()
    pruned = [each for pruner in pruners for each in pruner.result()]

    received = [message.id for message in publisher.received]
    assert sorted(received) == sorted(written), "each message was published once"
    counts = {status: OutboxMessage.objects.filter(status=status).count() for status in Status}
    assert counts[Status.DEAD] == 50
    assert counts[Status.PENDING] == 50
    assert counts[Status.DISCARDED] == 0
    assert sum(each.published for each in pruned) >= settled
    assert sum(each.discarded for each in pruned) == settled // 100
    assert sum(each.dead for each in pruned) == 0
    assert [record.getMessage() for record in caplog.records] == []
    assert deadlocks(database) == before


def remaining() -> bool:
    """Whether something is left that pruning has to delete."""
    return (
        OutboxMessage.objects.filter(created_at__lt=LONG_AGO + timedelta(days=1))
        .exclude(status__in=[Status.DEAD, Status.PENDING])
        .exists()
    )


@pytest.fixture(autouse=True)
def short_retention(outbox_settings):
    """What the relays publish meanwhile is due to be deleted while they are still at work."""
    outbox_settings(
        LEASE=4, CONFIRM_TIMEOUT=1, RETENTION={"published": 4, "discarded": timedelta(days=1)}
    )


@everywhere
@at_both_levels
def test_pruners_relays_and_writers_get_along(database, isolation, caplog):
    run(database, caplog, settled=3_000, messages=100)


@pytest.mark.deep
@everywhere
@at_both_levels
def test_pruners_relays_and_writers_get_along_for_long(database, isolation, caplog):
    run(database, caplog, settled=200_000, messages=3_000)
