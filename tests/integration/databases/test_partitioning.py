"""A project's migration partitions the outbox; pruning makes its months and drops them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.migrations.state import ProjectState

from django_outbox import enqueue
from django_outbox.databases import partitions
from django_outbox.databases.clock import read_clock
from django_outbox.databases.partitioning import PartitionOutbox
from django_outbox.databases.partitions import AHEAD, Partitions, month_of, next_month
from django_outbox.exceptions import DuplicateMessageId
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.prune import prune
from django_outbox.operations.stats import collect_stats
from django_outbox.relay import presence
from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import Stop
from django_outbox.testing import ScriptedPublisher
from tests.support.partitioned import database, migrate, partitioned
from tests.support.stored import stored
from tests.support.threads import Worker, wait_for, wait_until

__all__ = ["database", "partitioned"]

TABLE = "django_outbox_outboxmessage"
MONTHS = {"published": timedelta(days=30), "discarded": None, "dead": None, "processed": None}


@pytest.fixture
def months(database):
    """The partitions; those that a test adds are gone after it."""
    found = Partitions("default", TABLE)
    before = {each.name for each in found.all()}
    yield found
    with connection.cursor() as cursor:
        for each in found.all():
            if each.name not in before:
                cursor.execute(f"DROP TABLE {each.name}")


def make_past(months, back):
    """A month of long ago, cut out of what there was earlier, which has to be empty for it."""
    month = month_of(read_clock("default"))
    for _ in range(back):
        month = month_of(month - timedelta(days=1))
    name = f"{TABLE}_p{month:%Y_%m}"
    earlier = f"{TABLE}_earlier"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {earlier}")
        months.make_leaf(cursor, name, like=earlier)
        bounds = f"FROM ('{month}') TO ('{next_month(month)}')"
        cursor.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {name} FOR VALUES {bounds}")
        upper = next_month(month_of(read_clock("default")))
        cursor.execute(
            f"ALTER TABLE {TABLE} ATTACH PARTITION {earlier}"
            f" FOR VALUES FROM ('{next_month(month)}') TO ('{upper}')"
        )
    return name, month + timedelta(days=3)


def old(moment, status=Status.PUBLISHED, **columns):
    published = {"published_at": moment} if status == Status.PUBLISHED else {}
    return stored(status, **{"created_at": moment, "available_at": moment, **published, **columns})


def names(months):
    return {each.name for each in months.all()}


def ask(sql, *params):
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


def indexes(table):
    return dict(ask("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s", table))


def test_rows_ids_indexes_settings_and_rights_survive_there_and_back(database):
    role = "outbox_reader"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP ROLE IF EXISTS {role}")
        cursor.execute(f"CREATE ROLE {role}")
    try:
        migrate(back=True)
        with connection.cursor() as cursor:
            cursor.execute(f"GRANT SELECT, INSERT ON {TABLE} TO {role}")
        first = stored(payload={"n": 1})
        options = ask("SELECT reloptions FROM pg_class WHERE relname = %s", TABLE)
        before = indexes(TABLE)
        migrate()
        second = stored()
        assert second.pk == first.pk + 1
        assert set(before) - set(indexes(TABLE)) == {f"{TABLE}_pkey", f"{TABLE}_message_id_key"}
        for leaf in (f"{TABLE}_earlier", f"{TABLE}_default"):
            assert ask("SELECT reloptions FROM pg_class WHERE relname = %s", leaf) == options
            assert len(indexes(leaf)) == len(before), "as many as there were, none twice"
        assert ask("SELECT has_table_privilege(%s, %s, 'INSERT')", role, TABLE) == [(True,)]
        migrate(back=True)
        third = stored()
        assert third.pk == second.pk + 1
        assert list(OutboxMessage.objects.order_by("id")) == [first, second, third]
        assert set(indexes(TABLE)) == set(before)
        assert ask("SELECT reloptions FROM pg_class WHERE relname = %s", TABLE) == options
        assert ask("SELECT has_table_privilege(%s, %s, 'INSERT')", role, TABLE) == [(True,)]
        assert ask("SELECT count(*) FROM pg_inherits WHERE inhparent = %s::regclass", TABLE) == [
            (0,)
        ]
        assert ask("SELECT to_regclass(%s)", f"{TABLE}_default") == [(None,)]
        migrate()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {role}")
            cursor.execute(f"DROP ROLE {role}")


def test_there_is_a_partition_for_this_month_and_those_ahead(months):
    now = month_of(read_clock("default"))
    ends = [each.ends for each in months.all()]
    expected = [now := next_month(now) for _ in range(AHEAD + 1)]
    assert ends == [*expected, None]


def test_a_message_is_enqueued_published_and_looked_at_as_ever(database):
    with transaction.atomic():
        row = enqueue("invoice.issued", {"n": 1}, aggregate=("t", "1"))
    publisher = ScriptedPublisher()
    assert Relay(publisher_for=lambda alias: publisher).drain().published == 1
    assert [message.id for message in publisher.received] == [row.message_id]
    assert collect_stats().counts["published"].number == 1


def test_a_sleeping_relay_is_woken(database, outbox_settings, monkeypatch):
    monkeypatch.setattr(presence, "INTERVAL", 600)
    outbox_settings(WAKEUP="notify", POLL_INTERVAL=(600, 600))
    publisher, stop = ScriptedPublisher(), Stop()
    working = Worker(Relay(publisher_for=lambda alias: publisher).run, stop)
    announced = (
        "SELECT 1 FROM pg_locks JOIN pg_database AS db ON db.oid = database"
        " WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND datname = current_database()"
    )
    wait_until(lambda: ask(announced), "it sleeps")
    with transaction.atomic():
        enqueue("invoice.issued", {})
    wait_until(lambda: publisher.received, "it has published")
    stop.set()
    working.result()


def test_a_message_id_is_unique_within_its_month_only(months):
    _, moment = make_past(months, 1)
    row = old(moment)
    with transaction.atomic():
        enqueue("invoice.issued", {}, message_id=row.message_id)
    with pytest.raises(DuplicateMessageId), transaction.atomic():
        enqueue("invoice.issued", {}, message_id=row.message_id)
    assert OutboxMessage.objects.filter(message_id=row.message_id).count() == 2


def test_months_are_made_ahead_and_take_what_fell_into_the_default_one(months):
    month = month_of(read_clock("default"))
    for _ in range(AHEAD + 1):
        month = next_month(month)
    beyond = old(month + timedelta(days=1), Status.PENDING)
    assert months.make_ahead() == []
    assert months.make_ahead(AHEAD + 2) == [
        f"{TABLE}_p{month:%Y_%m}",
        f"{TABLE}_p{next_month(month):%Y_%m}",
    ]
    assert ask(f"SELECT count(*) FROM {TABLE}_default") == [(0,)]
    assert OutboxMessage.objects.get() == beyond
    assert ask("SELECT reloptions FROM pg_class WHERE relname = %s", f"{TABLE}_p{month:%Y_%m}") == (
        ask("SELECT reloptions FROM pg_class WHERE relname = %s", f"{TABLE}_default")
    )


def test_what_is_written_into_the_default_one_while_its_month_is_made_moves_too(
    months, monkeypatch
):
    monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "60s")
    month = month_of(read_clock("default"))
    for _ in range(AHEAD + 1):
        month = next_month(month)

    def make():
        with connection.cursor() as cursor:
            cursor.execute(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            )
        return months.make_ahead(AHEAD + 1)

    waits = f"SELECT 1 FROM pg_locks WHERE relation = '{TABLE}_default'::regclass AND NOT granted"
    with transaction.atomic():
        row = old(month + timedelta(days=1), Status.PENDING)
        making = Worker(make)
        wait_until(lambda: ask(waits), "it waits for the producer")
    assert making.result() == [f"{TABLE}_p{month:%Y_%m}"]
    assert OutboxMessage.objects.get() == row
    assert ask(f"SELECT count(*) FROM {TABLE}_default") == [(0,)]


def test_a_month_that_is_done_with_is_dropped_whole(months, outbox_settings):
    outbox_settings(RETENTION=MONTHS)
    name, moment = make_past(months, 3)
    for _ in range(3):
        old(moment)
    kept = stored(Status.PUBLISHED)
    assert prune(dry_run=True).partitions == 1
    pruned = prune()
    assert (pruned.partitions, pruned.published) == (1, 0)
    assert name not in names(months)
    assert list(OutboxMessage.objects.all()) == [kept]


@pytest.mark.parametrize(
    "status", [Status.PENDING, Status.DEAD, Status.DISCARDED], ids=lambda status: str(status)
)
def test_one_row_that_is_kept_keeps_its_month_and_the_others_go_one_by_one(
    months, outbox_settings, status
):
    outbox_settings(RETENTION=MONTHS)
    name, moment = make_past(months, 3)
    kept = old(moment, status)
    old(moment)
    pruned = prune()
    assert (pruned.partitions, pruned.published) == (0, 1)
    assert name in names(months)
    assert list(OutboxMessage.objects.all()) == [kept]


def test_what_was_published_late_keeps_its_month_until_it_is_due(months, outbox_settings):
    outbox_settings(RETENTION=MONTHS)
    name, moment = make_past(months, 3)
    late = old(moment, published_at=read_clock("default") - timedelta(days=29))
    assert prune().partitions == 0
    assert list(OutboxMessage.objects.all()) == [late]
    OutboxMessage.objects.update(published_at=moment)
    assert prune().partitions == 1
    assert name not in names(months)


def test_a_month_of_dead_messages_goes_where_their_retention_says_so(months, outbox_settings):
    outbox_settings(RETENTION={**MONTHS, "dead": timedelta(days=20)})
    name, moment = make_past(months, 3)
    old(moment, Status.DEAD)
    assert prune().partitions == 1
    assert name not in names(months)


def test_this_month_is_pruned_by_nobody_before_it_is_over(months, outbox_settings):
    """Deleting row by row what goes as a whole a few days later would be work for nothing."""
    outbox_settings(RETENTION={**MONTHS, "published": timedelta(hours=1)})
    row = old(max(month_of(read_clock("default")), read_clock("default") - timedelta(hours=2)))
    assert prune().published == 0
    assert list(OutboxMessage.objects.all()) == [row]


def test_an_archive_sees_every_message_before_its_month_goes(months, outbox_settings):
    archive = f"{__name__}.keep"
    outbox_settings(RETENTION=MONTHS, ARCHIVE=archive)
    kept.clear()
    name, moment = make_past(months, 3)
    row = old(moment)
    pruned = prune()
    assert (pruned.partitions, pruned.published) == (0, 1)
    assert [each.message_id for each in kept] == [str(row.message_id)]
    assert prune().partitions == 1
    assert name not in names(months)


kept: list = []


def keep(rows):
    """An archive."""
    kept.extend(rows)


def test_a_month_waits_where_a_long_transaction_uses_the_table(months, outbox_settings, caplog):
    outbox_settings(RETENTION=MONTHS)
    name, moment = make_past(months, 3)
    old(moment)
    go, done = threading.Event(), threading.Event()

    def read_for_long():
        with transaction.atomic():
            list(OutboxMessage.objects.all())
            go.set()
            wait_for(done, "the test is over")

    reading = Worker(read_for_long)
    wait_for(go, "the transaction is open")
    assert prune().partitions == 0
    assert name in names(months)
    assert "has to wait: the table is in use by a long transaction" in caplog.text
    done.set()
    reading.result()
    assert prune().partitions == 1


def test_a_foreign_key_to_the_outbox_is_refused_before_anything_is_changed(database):
    migrate(back=True)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE pointer (message_id bigint REFERENCES {TABLE})")
    try:
        with pytest.raises(ProgrammingError, match="pointer has a foreign key to the outbox"):
            migrate()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE pointer")
        migrate()


def test_a_migration_that_does_not_depend_on_the_outbox_is_told_so(database):
    with (
        connection.schema_editor(collect_sql=True) as editor,
        pytest.raises(ValueError, match="let the migration depend on the latest one"),
    ):
        PartitionOutbox().database_forwards("shop", editor, ProjectState(), ProjectState())


def test_months_are_those_of_utc():
    berlin = datetime.fromisoformat("2026-12-01T00:30:00+01:00")
    assert month_of(berlin) == datetime(2026, 11, 1, tzinfo=UTC)
    assert next_month(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 2, 1, tzinfo=UTC)
    assert next_month(datetime(2026, 12, 1, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)
