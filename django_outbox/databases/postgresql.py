"""PostgreSQL: one statement claims, one statement a verdict settles, an advisory lock keeps order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.db import NotSupportedError, OperationalError
from django.db.backends.postgresql.psycopg_any import is_psycopg3
from django.db.backends.utils import CursorWrapper

from django_outbox.batches import Limits
from django_outbox.databases.array_literals import plain_array, text_array
from django_outbox.databases.base import CLAIM_LOCK_TIMEOUT, WorkListener
from django_outbox.databases.connecting import own_connection
from django_outbox.databases.errors import is_lock_timeout
from django_outbox.databases.free_rows import Dialect, Fragment, free_rows
from django_outbox.databases.listening import CLAIM_LOCK, PostgreSQLListener, lock_key
from django_outbox.databases.outcomes import Lease, Outcomes
from django_outbox.databases.postgresql_inserts import NOW, PostgreSQLInserts
from django_outbox.databases.rows import CLAIMED_COLUMNS

#: A time as an integer: the drivers would parse each timestamp in Python.
MICROSECONDS = "(extract(epoch FROM {}) * 1000000)::bigint"
DIALECT = Dialect(now=NOW, matches="topic ~ %s")

# Served by the partial index (available_at, id) WHERE status = 'pending'. SKIP LOCKED: what somebody
# else works on is passed over, never waited for. The payload is read of the taken rows only.
_CLAIM = """
{with_busy} due AS MATERIALIZED (
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
_AS = {
    "payload": "message.payload::text",
    "headers": "message.headers::text",
    "created_at": MICROSECONDS.format("message.created_at"),
}
_RETURNING = ", ".join(_AS.get(column, f"message.{column}") for column in CLAIMED_COLUMNS)

_NEXT_DUE = """
{with_busy} free AS (
    SELECT available_at FROM {table}
    WHERE status = 'pending' AND {free}
    ORDER BY available_at, id
    LIMIT 1
)
SELECT greatest(0, date_part('epoch', available_at - {now})) FROM free
"""

# Each is served by the primary key and fenced by the token.
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

# For the claim's transaction only. No relay waits for ever, nor keeps others waiting. Walk the indexes
# in their order and look sets up by hash, even where the statistics are of a time when the table looked
# different, as a queue's always are; room for a million aggregates in those sets; no compiling of a
# statement that runs for milliseconds. No wait for the disk: a lease that a crash of the server takes
# along means that its messages are sent once more, which a lease that ends in the crash means as well.
_SETTINGS_OF_THE_CLAIM = """
set_config('lock_timeout', '{patience}s', TRUE),
set_config('idle_in_transaction_session_timeout', '{patience}s', TRUE),
set_config('enable_seqscan', 'off', TRUE), set_config('enable_bitmapscan', 'off', TRUE),
set_config('jit', 'off', TRUE), set_config('synchronous_commit', 'off', TRUE),
set_config('work_mem',
    greatest(pg_size_bytes(current_setting('work_mem')) / 1024, 65536)::text, TRUE)
"""
_WALK_INDEXES = """
SELECT set_config('enable_seqscan', 'off', TRUE), set_config('enable_bitmapscan', 'off', TRUE),
    set_config('enable_sort', 'off', TRUE)
"""


class PostgreSQL(PostgreSQLInserts):
    """PostgreSQL 14 and later, as Django 5.2 asks for."""

    vendor = "postgresql"
    supports_notify = is_psycopg3

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    def _take(self, limits: Limits, lease: Lease) -> Sequence[Sequence[Any]]:
        sql, params = self._with_free(_CLAIM, limits, returning=_RETURNING)
        params += (limits.rows, limits.bytes, lease.token, lease.seconds, lease.leased_by)
        statements = self._prepare_claim(limits)
        try:
            with self.transaction() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                cursor.execute(sql, params)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
        except OperationalError as error:
            if not is_lock_timeout(error):
                raise
            self.warn_of_stuck_claim()
            return []
        return rows

    def _prepare_claim(self, limits: Limits) -> list[str]:
        """Statements that let one relay after the other claim ordered messages.

        A relay cannot see a lease that another has not committed yet. The lock is taken before the
        claim's statement, and at READ COMMITTED, so that the claim's snapshot is newer than the lock.
        A relay that freezes in its claim is thrown out by the server after a while.

        One command each: the driver may prepare what it is given, and prepares no more than one.
        """
        statements, calls = [], []
        if not self.connection.in_atomic_block:
            statements.append("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            calls.append(_SETTINGS_OF_THE_CLAIM.format(patience=CLAIM_LOCK_TIMEOUT))
        if not limits.unordered.is_everything:
            calls.append(f"pg_advisory_xact_lock({lock_key(self._oid(), CLAIM_LOCK)})")
        if calls:
            statements.append(f"SELECT {', '.join(calls)}")
        return statements

    def _with_free(self, sql: str, limits: Limits, **parts: str) -> Fragment:
        """The statement, and the parameters of its first part, for the rows that the limits allow."""
        free = free_rows(DIALECT, self.table, limits)
        (busy, busy_params), (condition, free_params) = free.with_busy, free.condition
        with_busy = f"{busy}," if busy else "WITH"
        text = sql.format(table=self.table, now=NOW, with_busy=with_busy, free=condition, **parts)
        return text, busy_params + free_params

    def _write(self, token: UUID, outcomes: Outcomes, delete_published: bool) -> set[int]:
        statements: list[Fragment] = []
        if outcomes.published:
            sql = _DELETED if delete_published else _PUBLISHED
            statements.append((sql, (plain_array(outcomes.published),)))
        if outcomes.released:
            statements.append((_RELEASED, (plain_array(outcomes.released),)))
        if outcomes.retried:
            ids, delays, reasons = zip(*outcomes.retried, strict=True)
            arrays = (plain_array(ids), plain_array(delays), text_array(reasons))
            statements.append((_RETRIED, arrays))
        if outcomes.dead:
            ids, reasons = zip(*outcomes.dead, strict=True)
            statements.append((_DEAD, (plain_array(ids), text_array(reasons))))
        written: set[int] = set()
        with self._transaction_for(len(statements)) as cursor:
            for sql, params in statements:
                cursor.execute(sql.format(table=self.table, now=NOW), (*params, token))
                written.update(row_id for (row_id,) in cursor.fetchall())
        return written

    def _transaction_for(self, statements: int) -> AbstractContextManager[CursorWrapper]:
        """One statement is a transaction of its own: two turns to the server less for each batch."""
        is_alone = statements == 1 and self.connection.get_autocommit()
        return self.connection.cursor() if is_alone else self.transaction()

    def seconds_until_due(self, limits: Limits) -> float | None:
        with self.connection.cursor() as cursor:
            cursor.execute(*self._with_free(_NEXT_DUE, limits))
            row = cursor.fetchone()
        return None if row is None else float(row[0])

    def listener(self) -> WorkListener:
        if not self.supports_notify:
            raise NotSupportedError("WAKEUP = 'notify' needs psycopg 3; with psycopg2 use 'poll'.")
        return PostgreSQLListener(self.alias, self.table)

    def walk_indexes(self, cursor: CursorWrapper) -> None:
        cursor.execute(_WALK_INDEXES)

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[bool]:
        digest = blake2b(f"django_outbox:{name}".encode(), digest_size=8).digest()
        key = int.from_bytes(digest, signed=True)
        # The lock of a transaction, on a connection of its own: the lock of a session would outlive its
        # owner where a pool or a pooler hands the session on. It holds neither rows nor a snapshot.
        with closing(own_connection(self.alias)) as connection:
            connection.set_autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [key])
                (mine,) = cursor.fetchone()
            yield mine

    def _oid(self) -> str:
        """SQL of the table's OID, which tells it from its namesakes in other schemas."""
        return f"'{self.table}'::regclass::oid"
