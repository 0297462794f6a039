"""SQLite, for development and tests: one writer at a time, so that order needs no further lock."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.db import connections

from django_outbox.batches import Limits
from django_outbox.databases.base import (
    Database,
    Inserted,
    NewMessage,
    chunks,
    inserted,
    processed_row,
)
from django_outbox.databases.clock import as_stored
from django_outbox.databases.free_rows import Dialect, FreeRows, free_rows
from django_outbox.databases.outcomes import Lease, Outcomes
from django_outbox.databases.rows import CLAIMED_COLUMNS

if TYPE_CHECKING:
    from django.db.backends.sqlite3.base import DatabaseWrapper

# The text that Django writes; a time with fewer decimals sorts before its own prolongation.
NOW = "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')"
DIALECT = Dialect(now=NOW, matches="topic REGEXP %s")
NOW_PLUS = "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', {seconds})"

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

# One parameter holds all rows, so that their number has no limit. WHERE TRUE tells SQLite's parser
# that ON CONFLICT belongs to the INSERT and is no join.
_INSERT = """
INSERT INTO {table} ({columns}, available_at)
SELECT {values}, COALESCE(max(json_extract(value, '$.due'), {now}), {due})
FROM json_each(%s) WHERE TRUE ORDER BY key
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id, id, available_at, created_at
"""

# Served by the partial index (available_at, id) WHERE status = 'pending'. A single statement takes
# SQLite's write lock before it reads, whatever the transaction mode.
_CLAIM = """
UPDATE {table}
SET lease_token = %s, lease_expires_at = {lease_end}, leased_by = %s, attempts = attempts + 1
WHERE id IN (
    {with_busy}
    SELECT id FROM (
        SELECT id, size,
            sum(size) OVER (ORDER BY available_at, id ROWS UNBOUNDED PRECEDING) AS running
        FROM (
            SELECT id, available_at, size FROM {table}
            WHERE status = 'pending' AND available_at <= {now} AND {free}
            ORDER BY available_at, id
            LIMIT %s
        )
    )
    WHERE running <= %s OR running = size
)
RETURNING {returning}
"""

_NEXT_DUE = """
{with_busy}
SELECT max(0.0, round((julianday(available_at) - julianday('NOW')) * 86400.0, 3)) FROM {table}
WHERE status = 'pending' AND {free}
ORDER BY available_at, id
LIMIT 1
"""

_PUBLISHED = """
UPDATE {table}
SET status = 'published', published_at = {now}, lease_token = NULL, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each(%s)) AND lease_token = %s
RETURNING id
"""
_DELETED = """
DELETE FROM {table}
WHERE id IN (SELECT value FROM json_each(%s)) AND lease_token = %s
RETURNING id
"""
_RELEASED = """
UPDATE {table}
SET attempts = max(attempts - 1, 0), lease_token = NULL, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each(%s)) AND lease_token = %s
RETURNING id
"""
_RETRIED = """
UPDATE {table}
SET available_at = {due}, last_error = json_extract(value, '$[2]'),
    lease_token = NULL, lease_expires_at = NULL
FROM json_each(%s)
WHERE {table}.id = json_extract(value, '$[0]') AND lease_token = %s
RETURNING {table}.id
"""
_DEAD = """
UPDATE {table}
SET status = 'dead', last_error = json_extract(value, '$[1]'),
    lease_token = NULL, lease_expires_at = NULL
FROM json_each(%s)
WHERE {table}.id = json_extract(value, '$[0]') AND lease_token = %s
RETURNING {table}.id
"""

_INSERT_PROCESSED = """
INSERT INTO {table} (consumer, message_id, topic, aggregate_type, aggregate_id, sequence)
SELECT %s, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(%s) WHERE TRUE ORDER BY key
ON CONFLICT (consumer, message_id) DO NOTHING
RETURNING message_id
"""

#: UPDATE … RETURNING and MATERIALIZED.
OLDEST = (3, 35, 0)


class SQLite(Database):
    """SQLite 3.35 and later."""

    vendor = "sqlite"

    @property
    def connection(self) -> DatabaseWrapper:
        return cast("DatabaseWrapper", connections[self.alias])

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    def insert_messages(self, rows: Sequence[NewMessage]) -> dict[UUID, Inserted]:
        sql = _INSERT.format(
            table=self.table,
            columns=", ".join(_NEW_COLUMNS),
            values=", ".join(f"json_extract(value, '$.{name}')" for name in _NEW_COLUMNS),
            now=NOW,
            due=NOW_PLUS.format(seconds="json_extract(value, '$.delay')"),
        )
        found: list[tuple[Any, ...]] = []
        with self.connection.cursor() as cursor:
            for chunk in chunks(rows):
                cursor.execute(sql, (json.dumps([self._json_row(row) for row in chunk]),))
                found += cursor.fetchall()
        return inserted(found)

    def _json_row(self, row: NewMessage) -> dict[str, object]:
        due = row.available_at
        return {
            **{name: getattr(row, name) for name in _NEW_COLUMNS},
            "message_id": row.message_id.hex,
            "due": None if due is None else as_stored(due, self.connection).isoformat(" "),
            "delay": _seconds(row.delay.total_seconds()),
        }

    def _take(self, limits: Limits, lease: Lease) -> Sequence[Sequence[Any]]:
        free = self._free(limits)
        (with_busy, busy_params), (condition, free_params) = free.with_busy, free.condition
        sql = _CLAIM.format(
            table=self.table,
            now=NOW,
            lease_end=NOW_PLUS.format(seconds="%s"),
            with_busy=with_busy,
            free=condition,
            returning=", ".join(CLAIMED_COLUMNS),
        )
        taking = (lease.token.hex, _seconds(lease.seconds), lease.leased_by)
        with self.transaction() as cursor:
            cursor.execute(sql, (*taking, *busy_params, *free_params, limits.rows, limits.bytes))
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _free(self, limits: Limits) -> FreeRows:
        return free_rows(DIALECT, self.table, limits)

    def _write(self, token: UUID, outcomes: Outcomes, delete_published: bool) -> set[int]:
        due = NOW_PLUS.format(seconds="json_extract(value, '$[1]')")
        retried = [(row_id, _seconds(wait), reason) for row_id, wait, reason in outcomes.retried]
        statements: list[tuple[str, Sequence[object]]] = [
            (_DELETED if delete_published else _PUBLISHED, outcomes.published),
            (_RELEASED, outcomes.released),
            (_RETRIED, retried),
            (_DEAD, outcomes.dead),
        ]
        written: set[int] = set()
        with self.transaction() as cursor:
            for sql, rows in statements:
                if rows:
                    cursor.execute(
                        sql.format(table=self.table, now=NOW, due=due),
                        (json.dumps(rows), token.hex),
                    )
                    written.update(row_id for (row_id,) in cursor.fetchall())
        return written

    def insert_new(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        sql = _INSERT_PROCESSED.format(table=self.inbox_table)
        new: set[UUID] = set()
        with self.connection.cursor() as cursor:
            for chunk in chunks(rows):
                values = [(id_.hex, *others) for id_, *others in map(processed_row, chunk)]
                cursor.execute(sql, (consumer, json.dumps(values)))
                new.update(UUID(message_id) for (message_id,) in cursor.fetchall())
        return new

    def seconds_until_due(self, limits: Limits) -> float | None:
        free = self._free(limits)
        (with_busy, busy_params), (condition, free_params) = free.with_busy, free.condition
        sql = _NEXT_DUE.format(table=self.table, with_busy=with_busy, free=condition)
        with self.connection.cursor() as cursor:
            cursor.execute(sql, (*busy_params, *free_params))
            row = cursor.fetchone()
        return None if row is None else float(row[0])

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        if sqlite3.sqlite_version_info < OLDEST:
            problem = (
                f"SQLite is version {sqlite3.sqlite_version}; a claim needs RETURNING, which came with"
                f" {'.'.join(map(str, OLDEST))}."
            )
            found.append((problem, "Use a newer Python or a newer SQLite library."))
        return found

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[bool]:
        if self.connection.is_in_memory_db():
            with _within_this_process(f"{self.connection.settings_dict['NAME']}\n{name}") as mine:
                yield mine
            return
        path = f"{self.connection.settings_dict['NAME']}-outbox-{name}.lock"
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as lock:
            try:
                # The lock is SQLite's own on an empty file beside the database: it works between
                # processes wherever SQLite does, and ends with the process that held it.
                lock.execute("BEGIN EXCLUSIVE")
                mine = True
            except sqlite3.OperationalError:
                mine = False
            yield mine


_locks_guard = threading.Lock()
_held_locks: set[str] = set()


@contextmanager
def _within_this_process(key: str) -> Iterator[bool]:
    with _locks_guard:
        mine = key not in _held_locks
        _held_locks.add(key)
    try:
        yield mine
    finally:
        if mine:
            with _locks_guard:
                _held_locks.discard(key)


def _seconds(seconds: float) -> str:
    """A modifier of SQLite's date functions, which know no exponents."""
    return f"{seconds:+.3f} seconds"
