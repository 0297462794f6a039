"""The months of a partitioned outbox on PostgreSQL: made ahead of time, dropped as a whole.

The parent is partitioned by the month of ``created_at``, in UTC. Its partitions are
``…_earlier`` (what there was before), one ``…_pYYYY_MM`` for each month, and ``…_default`` for what no
month was made for in time. The primary key and the unique message id are each partition's own: a
unique index of the whole could not leave out ``created_at``, and would tell nothing with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_outbox.databases.clock import read_clock
from django_outbox.databases.errors import is_lock_timeout

logger = logging.getLogger(__name__)

#: Months that are made ahead of the present one.
AHEAD = 2
#: How long the table may be locked against everybody, or a lock be waited for, which holds up others too.
LOCK_TIMEOUT = "500ms"

_IS_PARTITIONED = (
    "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'p')"
)
_PARTITIONS = """
SELECT child.relname, extract(epoch FROM
    (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'TO \\(''([^'']+)''\\)'))[1]::timestamptz
)::bigint
FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = %s::regclass
ORDER BY 2 NULLS LAST
"""
_LIKE = (
    "CREATE TABLE {leaf} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)"
)
_OWN_KEYS = "ALTER TABLE {leaf} ADD PRIMARY KEY (id), ADD UNIQUE (message_id)"
#: The storage parameters of a table.
OPTIONS = "SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = %s::regclass"
_MOVE = """
WITH moved AS (
    DELETE FROM {default} WHERE created_at >= %s AND created_at < %s RETURNING *
)
INSERT INTO {leaf} SELECT * FROM moved
"""
_KEPT = "EXISTS (SELECT FROM {leaf} WHERE status = '{status}' {younger})"
_YOUNGER = "AND {column} >= statement_timestamp() - %s * INTERVAL '1 second'"
#: What a retention counts from, by status.
_AGED_BY = {"published": "published_at", "discarded": "available_at", "dead": "available_at"}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, by its unquoted name."""

    name: str
    ends: datetime | None
    """The end of its last month, in UTC; None: the default partition."""


class Partitions:
    """The partitions of one outbox table."""

    def __init__(self, alias: str, table: str) -> None:
        """``table`` is the parent's name, unquoted."""
        self._alias = alias
        self._name = table
        self._table = self._quoted(table)

    def all(self) -> list[Partition]:
        """Every partition, the default one last."""
        with self._connection.cursor() as cursor:
            cursor.execute(_PARTITIONS, [self._table])
            return [
                Partition(name, None if ends is None else datetime.fromtimestamp(ends, UTC))
                for name, ends in cursor.fetchall()
            ]

    def make_ahead(self, months: int = AHEAD) -> list[str]:
        """Make what is missing for this month and so many further ones; returns the new names.

        Where somebody has the table locked it makes none: the default partition takes what comes.
        """
        made: list[str] = []
        known = self.all()
        covered = max((each.ends for each in known if each.ends is not None), default=None)
        month = month_of(read_clock(self._alias))
        for _ in range(months + 1):
            if covered is None or month >= covered:
                name = f"{self._name}_p{month:%Y_%m}"
                with self._unless_locked(name) as cursor:
                    self.make(cursor, name, month)
                    made.append(name)
            month = next_month(month)
        return made

    def make(self, cursor: CursorWrapper, name: str, month: datetime) -> None:
        """Make the partition of one month, and move there what the default one has of it."""
        leaf, default = self._quoted(name), self._quoted(f"{self._name}_default")
        begins, ends = month, next_month(month)
        # Nobody can write into the default one until the new one takes its place. Before anything is
        # read: above READ COMMITTED, what was committed while this waits would not be seen and moved.
        cursor.execute(f"LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE")
        self.make_leaf(cursor, name, like=default)
        cursor.execute(_MOVE.format(default=default, leaf=leaf), [begins, ends])
        bounds = f"FROM ('{begins.isoformat()}') TO ('{ends.isoformat()}')"
        cursor.execute(f"ALTER TABLE {self._table} ATTACH PARTITION {leaf} FOR VALUES {bounds}")

    def make_leaf(self, cursor: CursorWrapper, name: str, *, like: str) -> None:
        """Make a table that can become a partition, with keys of its own and the settings of ``like``."""
        leaf = self._quoted(name)
        cursor.execute(_LIKE.format(leaf=leaf, table=self._table))
        cursor.execute(_OWN_KEYS.format(leaf=leaf))
        cursor.execute(OPTIONS, [like])
        (options,) = cursor.fetchone()
        if options:
            cursor.execute(f"ALTER TABLE {leaf} SET ({options})")

    def droppable(self, retention: Mapping[str, timedelta | None] | None) -> list[str]:
        """The months that are over and hold nothing that is kept.

        ``retention`` says by status for how long, None for ever; None for all: they have to be empty.
        What is pending is always kept.
        """
        now = read_clock(self._alias)
        over = [each for each in self.all() if each.ends is not None and each.ends <= now]
        with self._connection.cursor() as cursor:
            return [each.name for each in over if not self._keeps(cursor, each.name, retention)]

    def drop(self, name: str, retention: Mapping[str, timedelta | None] | None) -> bool:
        """Drop one of these, if it still is one when nobody can write any more. False: not this time."""
        with self._unless_locked(name) as cursor:
            cursor.execute(f"LOCK TABLE ONLY {self._table} IN ACCESS EXCLUSIVE MODE")
            if not self._keeps(cursor, name, retention):
                cursor.execute(f"DROP TABLE {self._quoted(name)}")
                return True
        return False

    def _keeps(
        self,
        cursor: CursorWrapper,
        name: str,
        retention: Mapping[str, timedelta | None] | None,
    ) -> bool:
        leaf = self._quoted(name)
        if retention is None:
            cursor.execute(f"SELECT EXISTS (SELECT FROM {leaf})")
            return bool(cursor.fetchone()[0])
        kept, params = [_KEPT.format(leaf=leaf, status="pending", younger="")], list[float]()
        for status, column in _AGED_BY.items():
            age = retention[status]
            younger = "" if age is None else _YOUNGER.format(column=column)
            kept.append(_KEPT.format(leaf=leaf, status=status, younger=younger))
            params += [] if age is None else [age.total_seconds()]
        cursor.execute(f"SELECT {' OR '.join(kept)}", params)
        return bool(cursor.fetchone()[0])

    @contextmanager
    def _unless_locked(self, name: str) -> Iterator[CursorWrapper]:
        """A transaction that waits for no lock for long; what does not succeed is for the next time."""
        try:
            with transaction.atomic(using=self._alias), self._connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                yield cursor
        except OperationalError as error:
            if not is_lock_timeout(error):
                raise
            logger.warning(
                "The partition %s has to wait: the table is in use by a long transaction.",
                name,
                extra={"event": "partition_waits", "partition": name},
            )

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self._alias]

    def _quoted(self, name: str) -> str:
        return self._connection.ops.quote_name(name)


def partitions_of(alias: str, table: str) -> Partitions | None:
    """The partitions of this table; None where it has none, or the database knows none of this kind."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute(_IS_PARTITIONED, [connection.ops.quote_name(table)])
        return Partitions(alias, table) if cursor.fetchone()[0] else None


def month_of(moment: datetime) -> datetime:
    """When its month began, in UTC."""
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(month: datetime) -> datetime:
    """When the month after it begins."""
    return month_of(month + timedelta(days=32))
