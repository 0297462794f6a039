"""The initial migration: applied and taken back on every database."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from django_outbox.databases import Database
from django_outbox.models import OutboxMessage
from tests.support.rows import LIMITS, new_message, write

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)


def migrate(target: str | None = None) -> None:
    call_command("migrate", "django_outbox", *([target] if target else []), verbosity=0)


def tables() -> set[str]:
    return {name for name in connection.introspection.table_names() if "outboxmessage" in name}


def one(sql: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def test_the_tables_go_and_come_back(database: Database) -> None:
    try:
        migrate("zero")
        assert tables() == set()
        if database.vendor == "postgresql":
            assert one("SELECT count(*) FROM pg_proc WHERE proname LIKE '%outbox%wake'") == 0
    finally:
        migrate()
    assert tables() == {"django_outbox_outboxmessage"}
    write(database, new_message())
    assert database.claim(LIMITS, "host:1") is not None


def test_the_models_are_what_the_migrations_make(database: Database) -> None:
    call_command("makemigrations", "django_outbox", check=True, dry_run=True, verbosity=0)


def test_each_database_has_the_indexes_it_can_have(database: Database) -> None:
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, OutboxMessage._meta.db_table)
    columns = {
        name.removeprefix("django_outbox_"): known["columns"]
        for name, known in constraints.items()
        if name.startswith("django_outbox_") and known["index"] and not known["unique"]
    }
    everywhere = {
        "settled": ["status", "published_at"],
        "aggregate": ["aggregate_id", "id"],
        "correlation": ["correlation_id", "id"],
        "tag": ["index_tag", "id"],
    }
    if database.vendor == "mysql":
        due, busy = ["status", "available_at", "id"], ["status", "attempts"]
        assert columns == {**everywhere, "due": due, "busy": busy}
        return
    assert columns == {
        **everywhere,
        "due": ["available_at", "id"],
        "busy": ["aggregate_type", "aggregate_id", "id"],
        "set_aside": ["status", "published_at", "id"],
    }
    assert set(partial_indexes(database)) >= {f"django_outbox_{name}" for name in columns}


def partial_indexes(database: Database) -> list[str]:
    sql = (
        "SELECT indexname FROM pg_indexes WHERE indexdef LIKE '% WHERE %'"
        if database.vendor == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [name for (name,) in cursor.fetchall()]


def test_postgresql_vacuums_the_table_more_often_than_others(database: Database) -> None:
    if database.vendor != "postgresql":
        return
    options = one("SELECT reloptions FROM pg_class WHERE relname = 'django_outbox_outboxmessage'")
    assert isinstance(options, list)
    assert "autovacuum_vacuum_scale_factor=0.01" in options


@pytest.mark.parametrize(
    "change",
    [
        {"status": "unheard-of"},
        {"status": "published"},
        {"published_at": F("created_at")},
        {"lease_token": "0" * 31 + "1"},
        {"lease_expires_at": F("created_at")},
        {"message_id": "0" * 32},
        {"status": "dead", "lease_token": "0" * 31 + "1", "lease_expires_at": F("created_at")},
    ],
)
def test_the_table_refuses_what_cannot_be(database: Database, change: dict[str, object]) -> None:
    write(database, new_message())
    with pytest.raises(IntegrityError), transaction.atomic():
        OutboxMessage.objects.update(**change)


def test_a_row_needs_no_more_than_its_id_its_topic_and_its_payload(database: Database) -> None:
    """What other programs write is complete, whatever they know of Django."""
    message_id = new_message().message_id
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {database.table} (message_id, topic, payload) VALUES (%s, %s, %s)",
            [message_id.hex, "invoice.issued", '{"id": 1}'],
        )
    batch = database.claim(LIMITS, "host:1")
    assert batch is not None
    [claimed] = batch.claimed
    assert claimed.message.id == message_id
    assert claimed.message.headers == {}
