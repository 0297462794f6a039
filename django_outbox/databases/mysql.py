"""MySQL and MariaDB: read without locks, take by primary key, settle by primary key.

Without UPDATE … RETURNING a claim is several statements; GET_LOCK lets one relay after the other do
them, before its transaction begins, so that its snapshot holds what the one before has committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from django_outbox.batches import Limits
from django_outbox.databases.base import CLAIM_LOCK_TIMEOUT
from django_outbox.databases.free_rows import Dialect, FreeRows, free_rows
from django_outbox.databases.mysql_inserts import NOW, MySQLInserts, microseconds, places
from django_outbox.databases.outcomes import Lease, Outcomes
from django_outbox.databases.rows import CLAIMED_COLUMNS

_BUSY_INDEX = "FORCE INDEX (django_outbox_busy)"
MARIADB = Dialect(now=NOW, matches="topic REGEXP BINARY %s", once="AS", busy_index=_BUSY_INDEX)
MYSQL = Dialect(
    now=NOW,
    matches="REGEXP_LIKE(topic, %s, 'c')",
    once="AS",
    hint="/*+ SUBQUERY(MATERIALIZATION) */",
    busy_index=_BUSY_INDEX,
)

# Walks the index in its own order, without a lock: other relays are kept away by GET_LOCK, and what
# producers insert meanwhile is simply not seen.
_CANDIDATES = """
{with_busy}
SELECT id, size FROM {table} FORCE INDEX (django_outbox_due)
WHERE status = 'pending' AND available_at <= {now} AND {free}
ORDER BY available_at, id
LIMIT %s
"""
_FREE = "(lease_expires_at IS NULL OR lease_expires_at <= {now})"

# Always by primary key, whatever the optimizer thinks of a small table: a scan would wait for the
# locks of others on rows that do not matter here.
_LOCK = """
SELECT id FROM {table} FORCE INDEX (PRIMARY)
WHERE id IN {ids} AND status = 'pending' AND available_at <= {now} AND {free}
FOR UPDATE SKIP LOCKED
"""
_LEASE = """
UPDATE {table} FORCE INDEX (PRIMARY)
SET lease_token = %s, lease_expires_at = {now} + INTERVAL %s MICROSECOND, leased_by = %s,
    attempts = attempts + 1
WHERE id IN {ids}
"""
_READ = "SELECT {columns} FROM {table} WHERE id IN {ids}"

_NEXT_DUE = """
{with_busy}
SELECT TIMESTAMPDIFF(MICROSECOND, {now}, available_at)
FROM {table} FORCE INDEX (django_outbox_due)
WHERE status = 'pending' AND {free}
ORDER BY available_at, id
LIMIT 1
"""

_HELD = """
SELECT id FROM {table} FORCE INDEX (PRIMARY) WHERE id IN {ids} AND lease_token = %s FOR UPDATE
"""
_PUBLISHED = """
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'published', published_at = {now}, lease_token = NULL, lease_expires_at = NULL
WHERE id IN {ids}
"""
_DELETED = """
DELETE message FROM {table} AS message FORCE INDEX (PRIMARY) WHERE id IN {ids}
"""
_RELEASED = """
UPDATE {table} FORCE INDEX (PRIMARY)
SET attempts = IF(attempts > 0, attempts - 1, 0), lease_token = NULL, lease_expires_at = NULL
WHERE id IN {ids}
"""
_RETRIED = """
UPDATE {table} FORCE INDEX (PRIMARY)
SET available_at = {now} + INTERVAL (CASE id {delays} END) MICROSECOND,
    last_error = CASE id {reasons} END, lease_token = NULL, lease_expires_at = NULL
WHERE id IN {ids}
"""
_DEAD = """
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'dead', last_error = CASE id {reasons} END,
    lease_token = NULL, lease_expires_at = NULL
WHERE id IN {ids}
"""

_STATEMENT_LOG = (
    "The server writes its binary log as statements, and refuses to do so for transactions at READ"
    " COMMITTED, at which relays claim and settle."
)
_GALERA = (
    "The server is a node of a Galera cluster, which supports no GET_LOCK: relays cannot take turns,"
    " and would not keep the order of aggregates."
)
_VARIABLES = """
SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'wsrep_on')
"""


class MySQL(MySQLInserts):
    """MariaDB 10.6 and later, MySQL 8.0.13 and later."""

    vendor = "mysql"

    @property
    def dialect(self) -> Dialect:
        return MARIADB if self.connection.mysql_is_mariadb else MYSQL

    def _take(self, limits: Limits, lease: Lease) -> Sequence[Sequence[Any]]:
        with self._one_relay_claims() as mine, self.transaction() as cursor:
            ids = self._lock(cursor, self._candidates(cursor, limits)) if mine else []
            if not ids:
                return []
            cursor.execute(
                _LEASE.format(table=self.table, now=NOW, ids=places(ids)),
                [lease.token.hex, microseconds(lease.seconds), lease.leased_by, *ids],
            )
            columns = ", ".join(CLAIMED_COLUMNS)
            cursor.execute(_READ.format(table=self.table, columns=columns, ids=places(ids)), ids)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _candidates(self, cursor: CursorWrapper, limits: Limits) -> list[int]:
        """The ids a claim would take, in the claim's order, cut off at the limit of bytes."""
        free = self._free(limits)
        (with_busy, busy_params), (condition, free_params) = free.with_busy, free.condition
        cursor.execute(
            _CANDIDATES.format(table=self.table, now=NOW, with_busy=with_busy, free=condition),
            (*busy_params, *free_params, limits.rows),
        )
        ids: list[int] = []
        running = 0
        for row_id, size in cursor.fetchall():
            running += size
            if ids and running > limits.bytes:
                break
            ids.append(row_id)
        return ids

    def _lock(self, cursor: CursorWrapper, ids: list[int]) -> list[int]:
        if not ids:
            return []
        free = _FREE.format(now=NOW)
        cursor.execute(_LOCK.format(table=self.table, now=NOW, ids=places(ids), free=free), ids)
        return [row_id for (row_id,) in cursor.fetchall()]

    def _free(self, limits: Limits) -> FreeRows:
        return free_rows(self.dialect, self.table, limits)

    def _write(self, token: UUID, outcomes: Outcomes, delete_published: bool) -> set[int]:
        ids = [
            *outcomes.published,
            *outcomes.released,
            *(row_id for row_id, _delay, _reason in outcomes.retried),
            *(row_id for row_id, _reason in outcomes.dead),
        ]
        with self.transaction() as cursor:
            cursor.execute(_HELD.format(table=self.table, ids=places(ids)), [*ids, token.hex])
            held = {row_id for (row_id,) in cursor.fetchall()}
            published = [row_id for row_id in outcomes.published if row_id in held]
            self._update(cursor, _DELETED if delete_published else _PUBLISHED, published)
            released = [row_id for row_id in outcomes.released if row_id in held]
            self._update(cursor, _RELEASED, released)
            retried = {row[0]: row[1:] for row in outcomes.retried if row[0] in held}
            self._update(
                cursor,
                _RETRIED,
                list(retried),
                delays={row_id: microseconds(delay) for row_id, (delay, _) in retried.items()},
                reasons={row_id: reason for row_id, (_, reason) in retried.items()},
            )
            dead = {row_id: reason for row_id, reason in outcomes.dead if row_id in held}
            self._update(cursor, _DEAD, list(dead), reasons=dead)
        return held

    def _update(
        self, cursor: CursorWrapper, sql: str, ids: list[int], **cases: Mapping[int, Any]
    ) -> None:
        if not ids:
            return
        branches = {name: "WHEN %s THEN %s " * len(values) for name, values in cases.items()}
        params = [part for values in cases.values() for pair in values.items() for part in pair]
        statement = sql.format(table=self.table, now=NOW, ids=places(ids), **branches)
        cursor.execute(statement, [*params, *ids])

    def seconds_until_due(self, limits: Limits) -> float | None:
        free = self._free(limits)
        (with_busy, busy_params), (condition, free_params) = free.with_busy, free.condition
        sql = _NEXT_DUE.format(table=self.table, now=NOW, with_busy=with_busy, free=condition)
        with self.connection.cursor() as cursor:
            cursor.execute(sql, (*busy_params, *free_params))
            row = cursor.fetchone()
        return None if row is None else max(0.0, row[0] / 1_000_000)

    def server_problems(self) -> list[tuple[str, str]]:
        with self.connection.cursor() as cursor:
            cursor.execute(_VARIABLES)
            variables = {name.lower(): value for name, value in cursor.fetchall()}
        found = []
        if variables.get("log_bin") == "ON" and variables.get("binlog_format") == "STATEMENT":
            found.append((_STATEMENT_LOG, "Set binlog_format to ROW or MIXED."))
        if variables.get("wsrep_on") == "ON":
            found.append(
                (_GALERA, "Keep the outbox on a server that is no node of such a cluster.")
            )
        return found

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[bool]:
        with self._named_lock(name, 0) as mine:
            yield mine

    @contextmanager
    def transaction(self) -> Iterator[CursorWrapper]:
        """At READ COMMITTED: above it InnoDB locks gaps between rows, and producers would wait."""
        outermost = not self.connection.in_atomic_block
        with super().transaction() as cursor:
            if outermost and self.connection.isolation_level != "read committed":
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield cursor

    @contextmanager
    def _one_relay_claims(self) -> Iterator[bool]:
        with self._named_lock("claim", CLAIM_LOCK_TIMEOUT) as mine:
            if not mine:
                self.warn_of_stuck_claim()
            yield mine

    @contextmanager
    def _named_lock(self, name: str, timeout: int) -> Iterator[bool]:
        """A lock of this database's own: GET_LOCK's names belong to the whole server."""
        place = f"{self.connection.settings_dict['NAME']}\n{self.table}\n{name}"
        key = "django_outbox." + blake2b(place.encode(), digest_size=16).hexdigest()
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, %s)", [key, timeout])
            mine = cursor.fetchone()[0] == 1
        try:
            yield mine
        finally:
            if mine:
                self._release(key)

    def _release(self, key: str) -> None:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute("DO RELEASE_LOCK(%s)", [key])
        except DatabaseError:
            # The connection is broken: the lock ends with the session.
            self.connection.close()
