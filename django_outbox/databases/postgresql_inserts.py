"""PostgreSQL: what producers and the inbox write, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from django.db import DataError, OperationalError, connections
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.db.transaction import atomic

from django_outbox.databases.array_literals import plain_array, text_array
from django_outbox.databases.base import (
    Database,
    Inserted,
    NewMessage,
    chunks,
    inserted,
    processed_row,
)
from django_outbox.databases.clock import as_model_value, as_stored
from django_outbox.databases.errors import is_serialization_failure

if TYPE_CHECKING:
    from django.db.backends.postgresql.base import DatabaseWrapper

Row = TypeVar("Row")
Written = TypeVar("Written")

#: The clock at the beginning of the statement: after any wait for a lock in an earlier one.
NOW = "STATEMENT_TIMESTAMP()"

_NEW_COLUMNS = {
    "message_id": "uuid",
    "topic": "text",
    "schema_version": "smallint",
    "aggregate_type": "text",
    "aggregate_id": "text",
    "sequence": "bigint",
    "payload": "jsonb",
    "headers": "jsonb",
    "correlation_id": "text",
    "causation_id": "text",
    "size": "integer",
    "index_tag": "text",
}
_new_values = attrgetter(*_NEW_COLUMNS)
_WRITTEN_AS_TEXT = {"text", "jsonb"}

# Times come back as text, which Python reads faster than the drivers do. A message that is due now has
# the same time twice: statement_timestamp() stands still within a statement.
_INSERT = """
INSERT INTO {table} ({columns}, available_at)
VALUES ({values}, {due})
{on_conflict}
RETURNING id, created_at::text{available_at}
"""
# Whichever unique index it is: in a partitioned table, that of message ids is each partition's own.
_ON_CONFLICT = "ON CONFLICT DO NOTHING"

# The rows keep their order: unnest() hands them out one after the other, and so come their ids.
_INSERT_MANY = """
INSERT INTO {table} ({columns}, available_at)
SELECT {columns}, GREATEST(due, {now} + delay * INTERVAL '1 second')
FROM unnest({arrays}, %s::timestamptz[], %s::float8[]) AS new ({columns}, due, delay)
ON CONFLICT DO NOTHING
RETURNING message_id, id, available_at::text, created_at::text
"""

_INSERT_PROCESSED = """
INSERT INTO {table} (consumer, message_id, topic, aggregate_type, aggregate_id, sequence)
SELECT %s, new.*
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::bigint[]) AS new
ON CONFLICT (consumer, message_id) DO NOTHING
RETURNING message_id
"""
# One message at a time is the inbox's hot path: arrays would double what the statement costs.
_INSERT_ONE_PROCESSED = """
INSERT INTO {table} (consumer, message_id, topic, aggregate_type, aggregate_id, sequence)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (consumer, message_id) DO NOTHING
"""

_DELAYED = f"{NOW} + %s * INTERVAL '1 second'"
# A time in the past is now: an older one would overtake what its aggregate has written before.
_SCHEDULED = f"GREATEST(%s, {NOW})"


class PostgreSQLInserts(Database):
    """The half of the contract that runs inside the caller's transaction."""

    @property
    def connection(self) -> DatabaseWrapper:
        return cast("DatabaseWrapper", connections[self.alias])

    def insert_messages(self, rows: Sequence[NewMessage]) -> dict[UUID, Inserted]:
        if all(row.is_fresh for row in rows) or not self._sees_one_moment:
            return self._insert(rows)
        written: dict[UUID, Inserted] = {}
        for part in self._unseen(self._insert, rows):
            written.update(part)
        return written

    def _insert(self, rows: Sequence[NewMessage]) -> dict[UUID, Inserted]:
        if len(rows) == 1:
            return self._insert_one(rows[0])
        found: list[tuple[Any, ...]] = []
        with self.connection.cursor() as cursor:
            for chunk in chunks(rows):
                cursor.execute(self._insert_many_sql, self._arrays(chunk))
                found += cursor.fetchall()
        return inserted(found)

    def _insert_one(self, row: NewMessage) -> dict[UUID, Inserted]:
        due, params = NOW, _new_values(row)
        if row.available_at is not None:
            due, params = _SCHEDULED, (*params, as_stored(row.available_at, self.connection))
        elif row.delay:
            due, params = _DELAYED, (*params, row.delay.total_seconds())
        with self.connection.cursor() as cursor:
            cursor.execute(self._insert_sql[due, row.is_fresh], params)
            found = cursor.fetchone()
        if found is None:
            return {}
        row_id, written, *scheduled = found
        created_at = as_model_value(written)
        available_at = as_model_value(scheduled[0]) if scheduled else created_at
        return {row.message_id: Inserted(row_id, available_at, created_at)}

    def _arrays(self, rows: Sequence[NewMessage]) -> list[Any]:
        columns = zip(*map(_new_values, rows), strict=True)
        try:
            arrays: list[Any] = [
                text_array(values) if type_ in _WRITTEN_AS_TEXT else plain_array(values)
                for values, type_ in zip(columns, _NEW_COLUMNS.values(), strict=True)
            ]
        except ValueError as error:
            raise DataError(str(error)) from error
        connection = self.connection
        due = [
            None if row.available_at is None else as_stored(row.available_at, connection)
            for row in rows
        ]
        delays = plain_array(row.delay.total_seconds() for row in rows)
        return [*arrays, due if any(due) else plain_array(due), delays]

    @cached_property
    def _insert_sql(self) -> dict[tuple[str, bool], str]:
        return {
            (due, is_fresh): _INSERT.format(
                table=self.table,
                columns=", ".join(_NEW_COLUMNS),
                values=", ".join(["%s"] * len(_NEW_COLUMNS)),
                due=due,
                on_conflict="" if is_fresh else _ON_CONFLICT,
                available_at="" if due == NOW else ", available_at::text",
            )
            for due in (NOW, _DELAYED, _SCHEDULED)
            for is_fresh in (True, False)
        }

    @cached_property
    def _insert_many_sql(self) -> str:
        arrays = ", ".join(f"%s::{type_}[]" for type_ in _NEW_COLUMNS.values())
        columns = ", ".join(_NEW_COLUMNS)
        return _INSERT_MANY.format(table=self.table, columns=columns, arrays=arrays, now=NOW)

    def insert_new(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        insert = partial(self._insert_processed, consumer)
        unseen = self._sees_one_moment
        parts: list[set[UUID]] = []
        for chunk in chunks(rows):
            parts += self._unseen(insert, chunk) if unseen else [insert(chunk)]
        return set().union(*parts)

    def _insert_processed(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        values = [processed_row(row) for row in rows]
        with self.connection.cursor() as cursor:
            if len(values) == 1:
                cursor.execute(self._insert_one_processed, (consumer, *values[0]))
                return {values[0][0]} if cursor.rowcount == 1 else set()
            sql = _INSERT_PROCESSED.format(table=self.inbox_table)
            ids, *texts, sequences = zip(*values, strict=True)
            arrays = (plain_array(ids), *map(text_array, texts), plain_array(sequences))
            cursor.execute(sql, (consumer, *arrays))
            return {message_id for (message_id,) in cursor.fetchall()}

    @cached_property
    def _insert_one_processed(self) -> str:
        return _INSERT_ONE_PROCESSED.format(table=self.inbox_table)

    @property
    def _sees_one_moment(self) -> bool:
        """Whether the transaction sees the database as it was at its beginning."""
        connection: Any = self.connection  # the stubs do not know its isolation_level
        connection.ensure_connection()
        return bool(connection.isolation_level == IsolationLevel.REPEATABLE_READ)

    def _unseen(
        self, insert: Callable[[Sequence[Row]], Written], rows: Sequence[Row]
    ) -> list[Written]:
        """What ``insert`` returns for all rows at once, or for one after the other.

        At REPEATABLE READ a row that others committed after the snapshot is an error, for which nothing
        is written: one of ours was there. In a savepoint it costs no transaction.
        """
        try:
            with atomic(using=self.alias):
                return [insert(rows)]
        except OperationalError as error:
            if not is_serialization_failure(error):
                raise
        if len(rows) == 1:
            return []
        return [part for row in rows for part in self._unseen(insert, [row])]
