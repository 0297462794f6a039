"""PostgreSQL: one statement claims, one statement a verdict settles, an advisory lock keeps order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from django_outbox.batches import Limits
from django_outbox.databases.base import Database, Inserted, NewMessage, chunks
from django_outbox.databases.clock import as_model_value, as_stored
from django_outbox.databases.outcomes import Lease, Outcomes
from django_outbox.databases.rows import CLAIMED_COLUMNS
from django_outbox.databases.selections import EVERYTHING, NOTHING, Fragment, selected

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
}

_INSERT = """
INSERT INTO {table} ({columns}, available_at, last_error)
VALUES ({values}, {due}, '')
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id, id, available_at, created_at
"""

# The rows keep their order: unnest() hands them out one after the other, and so come their ids.
_INSERT_MANY = """
INSERT INTO {table} ({columns}, available_at, last_error)
SELECT {values}, COALESCE(due, {now} + delay * INTERVAL '1 second'), ''
FROM unnest({arrays}, %s::timestamptz[], %s::float8[]) AS new ({columns}, due, delay)
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id, id, available_at, created_at
"""

# Served by the partial index on busy rows. Read once a claim: as two hashed subplans over this set the
# rule costs the same whatever waits; as a join or NOT EXISTS the planner may try every row against it.
_BUSY = """
busy AS MATERIALIZED (
    SELECT aggregate_type, aggregate_id, min(id) AS head
    FROM ({busy}) AS held
    GROUP BY aggregate_type, aggregate_id
),
"""
_BUSY_PENDING = """
SELECT aggregate_type, aggregate_id, id FROM {table}
WHERE status = 'pending' AND attempts > 0 AND aggregate_id <> '' AND {ordered}
"""
_BUSY_DEAD = """
UNION ALL
SELECT aggregate_type, aggregate_id, id FROM {table}
WHERE status = 'dead' AND aggregate_id <> '' AND {blocking}
"""
_IN_ORDER = """
(aggregate_id = '' OR {unordered} OR CASE
    WHEN attempts > 0 THEN id IN (SELECT head FROM busy)
    ELSE (aggregate_type, aggregate_id) NOT IN (SELECT aggregate_type, aggregate_id FROM busy)
END)
"""

# Served by the partial index (available_at, id) WHERE status = 'pending'. SKIP LOCKED: what somebody
# else works on is passed over, never waited for. The payload is read of the taken rows only.
_CLAIM = """
WITH {busy} due AS MATERIALIZED (
    SELECT id, available_at, size FROM {table}
    WHERE status = 'pending' AND available_at <= {now} AND {free}
    ORDER BY available_at, id
    LIMIT %s
    FOR UPDATE SKIP LOCKED
), taken AS (
    SELECT id FROM (
        SELECT id, size,
            sum(size) OVER (ORDER BY available_at, id ROWS UNBOUNDED PRECEDING) AS running
        FROM due
    ) AS summed
    WHERE running <= %s OR running = size
)
UPDATE {table} AS message
SET lease_token = %s, lease_expires_at = {now} + %s * INTERVAL '1 second', leased_by = %s,
    attempts = attempts + 1
FROM taken
WHERE message.id = taken.id
RETURNING {returning}
"""

_NEXT_DUE = """
WITH {busy} free AS (
    SELECT available_at FROM {table}
    WHERE status = 'pending' AND {free}
    ORDER BY available_at, id
    LIMIT 1
)
SELECT greatest(0, extract(epoch FROM available_at - {now}))::float8 FROM free
"""

_PUBLISHED = """
UPDATE {table}
SET status = 'published', published_at = {now}, lease_token = NULL, lease_expires_at = NULL
WHERE id = ANY(%s::bigint[]) AND lease_token = %s
RETURNING id
"""
_DELETED = """
DELETE FROM {table} WHERE id = ANY(%s::bigint[]) AND lease_token = %s RETURNING id
"""
_RELEASED = """
UPDATE {table}
SET attempts = greatest(attempts - 1, 0), lease_token = NULL, lease_expires_at = NULL
WHERE id = ANY(%s::bigint[]) AND lease_token = %s
RETURNING id
"""
_RETRIED = """
UPDATE {table} AS message
SET available_at = {now} + verdict.delay * INTERVAL '1 second', last_error = verdict.reason,
    lease_token = NULL, lease_expires_at = NULL
FROM unnest(%s::bigint[], %s::float8[], %s::text[]) AS verdict (id, delay, reason)
WHERE message.id = verdict.id AND message.lease_token = %s
RETURNING message.id
"""
_DEAD = """
UPDATE {table} AS message
SET status = 'dead', last_error = verdict.reason, lease_token = NULL, lease_expires_at = NULL
FROM unnest(%s::bigint[], %s::text[]) AS verdict (id, reason)
WHERE message.id = verdict.id AND message.lease_token = %s
RETURNING message.id
"""

_INSERT_PROCESSED = """
INSERT INTO {table} (consumer, message_id, topic, aggregate_type, aggregate_id, sequence)
SELECT %s, new.*
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::bigint[]) AS new
ON CONFLICT (consumer, message_id) DO NOTHING
RETURNING message_id
"""


class PostgreSQL(Database):
    """PostgreSQL 14 and later."""

    vendor = "postgresql"
    supports_notify = True

    def insert_messages(self, rows: Sequence[NewMessage]) -> dict[UUID, Inserted]:
        connection = self.connection
        found: list[tuple[Any, ...]] = []
        with connection.cursor() as cursor:
            if len(rows) == 1:
                cursor.execute(*self._insert_one(rows[0]))
                found = cursor.fetchall()
            else:
                for chunk in chunks(rows):
                    cursor.execute(*self._insert_many(chunk))
                    found += cursor.fetchall()
        return {
            message_id: Inserted(
                row_id, as_model_value(due, connection), as_model_value(created, connection)
            )
            for message_id, row_id, due, created in found
        }

    def _insert_one(self, row: NewMessage) -> Fragment:
        due: Fragment = (f"{NOW}", ())
        if row.available_at is not None:
            due = ("%s", (as_stored(row.available_at, self.connection),))
        elif row.delay:
            due = (f"{NOW} + %s * INTERVAL '1 second'", (row.delay.total_seconds(),))
        sql = _INSERT.format(
            table=self.table,
            columns=", ".join(_NEW_COLUMNS),
            values=", ".join(["%s"] * len(_NEW_COLUMNS)),
            due=due[0],
        )
        return sql, (*(getattr(row, name) for name in _NEW_COLUMNS), *due[1])

    def _insert_many(self, rows: Sequence[NewMessage]) -> Fragment:
        arrays = [[getattr(row, name) for row in rows] for name in _NEW_COLUMNS]
        due = [
            None if row.available_at is None else as_stored(row.available_at, self.connection)
            for row in rows
        ]
        delays = [row.delay.total_seconds() for row in rows]
        as_text = {"jsonb": "text"}
        sql = _INSERT_MANY.format(
            table=self.table,
            columns=", ".join(_NEW_COLUMNS),
            values=", ".join(f"{name}::{type_}" for name, type_ in _NEW_COLUMNS.items()),
            arrays=", ".join(f"%s::{as_text.get(t, t)}[]" for t in _NEW_COLUMNS.values()),
            now=NOW,
        )
        return sql, (*arrays, due, delays)

    def _take(self, limits: Limits, lease: Lease) -> Sequence[Sequence[Any]]:
        outermost = not self.connection.in_atomic_block
        ordered = not limits.unordered.is_everything
        (busy, busy_params), (free, free_params) = self._free(limits)
        returning = ", ".join(
            f"message.{name}::text" if name in {"payload", "headers"} else f"message.{name}"
            for name in CLAIMED_COLUMNS
        )
        claim = _CLAIM.format(table=self.table, now=NOW, busy=busy, free=free, returning=returning)
        params = (
            *busy_params,
            *free_params,
            limits.rows,
            limits.bytes,
            lease.token,
            lease.seconds,
            lease.leased_by,
        )
        with self.transaction() as cursor:
            self._prepare_claim(cursor, ordered=ordered, outermost=outermost)
            cursor.execute(claim, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _prepare_claim(self, cursor: CursorWrapper, *, ordered: bool, outermost: bool) -> None:
        """Let one relay after the other claim ordered messages, each with a snapshot of its own.

        A relay cannot see a lease that another has not committed yet. The lock is taken in a
        statement before the claim's, and at READ COMMITTED: the claim's snapshot is newer than it.
        """
        statements = []
        if outermost:
            statements.append("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        if ordered:
            statements.append(f"SELECT pg_advisory_xact_lock({self.lock_key(CLAIM_LOCK)})")
        if statements:
            cursor.execute("; ".join(statements))

    def _free(self, limits: Limits) -> tuple[Fragment, Fragment]:
        """The CTE of busy aggregates, and the condition that picks rows which may go out in order."""
        topics, topic_params = selected(limits.topics, self.connection)
        condition = f"(lease_expires_at IS NULL OR lease_expires_at <= {NOW})"
        params: tuple[object, ...] = ()
        if (topics, topic_params) != EVERYTHING:
            condition += f" AND {topics}"
            params += topic_params
        unordered = selected(limits.unordered, self.connection)
        if unordered == EVERYTHING:
            return ("", ()), (condition, params)
        condition += " AND " + _IN_ORDER.format(unordered=unordered[0])
        return self._busy(limits, unordered), (condition, params + unordered[1])

    def _busy(self, limits: Limits, unordered: Fragment) -> Fragment:
        held = _BUSY_PENDING.format(table=self.table, ordered=f"NOT {unordered[0]}")
        params = unordered[1]
        blocking = selected(limits.blocking, self.connection)
        if blocking != NOTHING:
            held += _BUSY_DEAD.format(table=self.table, blocking=blocking[0])
            params += blocking[1]
        return _BUSY.format(busy=held), params

    def _write(self, token: UUID, outcomes: Outcomes, delete_published: bool) -> set[int]:
        statements: list[tuple[str, tuple[object, ...]]] = []
        if outcomes.published:
            sql = _DELETED if delete_published else _PUBLISHED
            statements.append((sql, (outcomes.published,)))
        if outcomes.released:
            statements.append((_RELEASED, (outcomes.released,)))
        if outcomes.retried:
            statements.append((_RETRIED, tuple(map(list, zip(*outcomes.retried, strict=True)))))
        if outcomes.dead:
            statements.append((_DEAD, tuple(map(list, zip(*outcomes.dead, strict=True)))))
        written: set[int] = set()
        with self.transaction() as cursor:
            for sql, params in statements:
                cursor.execute(sql.format(table=self.table, now=NOW), (*params, token))
                written.update(row_id for (row_id,) in cursor.fetchall())
        return written

    def insert_new(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        new: set[UUID] = set()
        columns = ("message_id", "topic", "aggregate_type", "aggregate_id", "sequence")
        sql = _INSERT_PROCESSED.format(table=self.inbox_table)
        with self.connection.cursor() as cursor:
            for chunk in chunks(rows):
                arrays = [[row.get(name, _BLANK.get(name)) for row in chunk] for name in columns]
                cursor.execute(sql, (consumer, *arrays))
                new.update(message_id for (message_id,) in cursor.fetchall())
        return new

    def seconds_until_due(self, limits: Limits) -> float | None:
        (busy, busy_params), (free, free_params) = self._free(limits)
        sql = _NEXT_DUE.format(table=self.table, now=NOW, busy=busy, free=free)
        with self.connection.cursor() as cursor:
            cursor.execute(sql, (*busy_params, *free_params))
            row = cursor.fetchone()
        return None if row is None else float(row[0])

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[bool]:
        digest = blake2b(f"django_outbox:{name}".encode(), digest_size=8).digest()
        key = int.from_bytes(digest, signed=True)
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
            (mine,) = cursor.fetchone()
        try:
            yield mine
        finally:
            if mine:
                with self.connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [key])

    def lock_key(self, number: int) -> str:
        """SQL of an advisory lock's key that belongs to this table, in whatever schema it lies."""
        return f"({LOCK_SPACE} + ('{self.table}'::regclass::oid::bigint << 8) + {number})"


#: "ob", the upper two bytes of all advisory locks that belong to the outbox's table.
LOCK_SPACE = 0x6F62 << 48
CLAIM_LOCK = 1

_BLANK = {"topic": "", "aggregate_type": "", "aggregate_id": ""}
