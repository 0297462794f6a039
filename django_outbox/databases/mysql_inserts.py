"""MySQL and MariaDB: what producers and the inbox write, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.db import IntegrityError, connections
from django.db.backends.utils import CursorWrapper

from django_outbox.databases.base import (
    Database,
    Inserted,
    NewMessage,
    chunks,
    inserted,
    processed_row,
)
from django_outbox.databases.clock import as_stored
from django_outbox.databases.errors import is_duplicate_key
from django_outbox.databases.free_rows import Fragment

if TYPE_CHECKING:
    from django.db.backends.mysql.base import DatabaseWrapper

#: What Django stores; NOW() would be the session's wall clock.
NOW = "UTC_TIMESTAMP(6)"

_NEW_COLUMNS = (
    "message_id",
    "topic",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "sequence",
    "payload",
    "headers",
    "correlation_id",
    "causation_id",
    "size",
    "index_tag",
)

_INSERT = """
INSERT INTO {table} ({columns}, available_at, created_at) VALUES {rows}
"""
_VALUES = f"({', '.join(['%s'] * len(_NEW_COLUMNS))}, {{due}}, {NOW})"
_RETURNING = " RETURNING message_id, id, available_at, created_at"
_INSERTED = """
SELECT message_id, id, available_at, created_at FROM {table} WHERE message_id IN {ids}
"""
# A locking read sees what others have committed since this transaction's snapshot.
_EXISTING = "SELECT message_id FROM {table} WHERE message_id IN {ids} LOCK IN SHARE MODE"

# On a conflict the row that was there is moved by a microsecond: a changed row is counted twice, while
# an unchanged one would be counted like a new one, because Django asks for the number of rows found.
_INSERT_PROCESSED = """
INSERT INTO {table}
    (consumer, message_id, topic, aggregate_type, aggregate_id, sequence, processed_at)
VALUES {rows}
ON DUPLICATE KEY UPDATE processed_at = processed_at + INTERVAL 1 MICROSECOND
"""
_PROCESSED_VALUES = f"(%s, %s, %s, %s, %s, %s, {NOW})"

#: A row that was in the way may be gone when it is looked for: its transaction rolled back.
INSERT_ATTEMPTS = 10


class MySQLInserts(Database):
    """The half of the contract that runs inside the caller's transaction."""

    @property
    def connection(self) -> DatabaseWrapper:
        return cast("DatabaseWrapper", connections[self.alias])

    def insert_messages(self, rows: Sequence[NewMessage]) -> dict[UUID, Inserted]:
        unique = {row.message_id: row for row in reversed(rows)}
        wanted = [row for row in rows if unique[row.message_id] is row]
        found: list[tuple[Any, ...]] = []
        with self.connection.cursor() as cursor:
            for chunk in chunks(wanted):
                found += self._insert(cursor, chunk)
        return inserted(found)

    def _insert(self, cursor: CursorWrapper, rows: Sequence[NewMessage]) -> list[tuple[Any, ...]]:
        for attempt in range(INSERT_ATTEMPTS):
            if not rows:
                break
            try:
                return self._insert_or_fail(cursor, rows)
            except IntegrityError as error:
                # InnoDB has taken back the statement, not the transaction.
                if not is_duplicate_key(error) or attempt + 1 == INSERT_ATTEMPTS:
                    raise
            known = self._existing(cursor, rows)
            rows = [row for row in rows if row.message_id not in known]
        return []

    def _insert_or_fail(
        self, cursor: CursorWrapper, rows: Sequence[NewMessage]
    ) -> list[tuple[Any, ...]]:
        values, params = [], []
        for row in rows:
            due, due_params = self._due(row)
            values.append(_VALUES.format(due=due))
            params += [row.message_id.hex, *(getattr(row, name) for name in _NEW_COLUMNS[1:])]
            params += due_params
        sql = _INSERT.format(
            table=self.table, columns=", ".join(_NEW_COLUMNS), rows=", ".join(values)
        )
        if self.connection.features.can_return_columns_from_insert:
            cursor.execute(sql + _RETURNING, params)
        else:
            cursor.execute(sql, params)
            ids = [row.message_id.hex for row in rows]
            cursor.execute(_INSERTED.format(table=self.table, ids=places(ids)), ids)
        inserted: list[tuple[Any, ...]] = cursor.fetchall()
        return list(inserted)

    def _due(self, row: NewMessage) -> Fragment:
        if row.available_at is not None:
            # A time in the past is now: an older one would overtake its aggregate's earlier rows.
            due = as_stored(row.available_at, self.connection)
            return f"GREATEST(CAST(%s AS DATETIME(6)), {NOW})", (due,)
        if row.delay:
            return f"{NOW} + INTERVAL %s MICROSECOND", (microseconds(row.delay.total_seconds()),)
        return NOW, ()

    def _existing(self, cursor: CursorWrapper, rows: Sequence[NewMessage]) -> set[UUID]:
        ids = [row.message_id.hex for row in rows]
        cursor.execute(_EXISTING.format(table=self.table, ids=places(ids)), ids)
        return {_uuid(message_id) for (message_id,) in cursor.fetchall()}

    def insert_new(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        new: set[UUID] = set()
        with self.connection.cursor() as cursor:
            for chunk in chunks(rows):
                new |= self._insert_new(cursor, consumer, chunk)
        return new

    def _insert_new(
        self, cursor: CursorWrapper, consumer: str, rows: Sequence[Mapping[str, object]]
    ) -> set[UUID]:
        values = [processed_row(row) for row in rows]
        savepoint = self.connection.savepoint() if len(rows) > 1 else None
        sql = _INSERT_PROCESSED.format(
            table=self.inbox_table, rows=", ".join([_PROCESSED_VALUES] * len(rows))
        )
        cursor.execute(
            sql,
            [
                part
                for message_id, *others in values
                for part in (consumer, message_id.hex, *others)
            ],
        )
        known = cursor.rowcount - len(rows)
        if known and savepoint:
            # Which of them were there cannot be said: once more, one by one.
            self.connection.savepoint_rollback(savepoint)
            return set().union(*(self._insert_new(cursor, consumer, [row]) for row in rows))
        if savepoint:
            self.connection.savepoint_commit(savepoint)
        return set() if known else {message_id for message_id, *_ in values}


def places(values: Sequence[object]) -> str:
    return f"({', '.join(['%s'] * len(values))})"


def _uuid(value: UUID | str) -> UUID:
    """Native on newer versions of MariaDB, 32 digits elsewhere; both read either form."""
    return value if isinstance(value, UUID) else UUID(value)


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
