"""Whether PostgreSQL can clear away what a claim and a settle leave behind: two dead rows a message.

One transaction that is left open holds all of them back, and claims then walk over them. Elsewhere there
is nothing to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.backends.base.base import BaseDatabaseWrapper

#: Without it autovacuum comes when a fifth of the table is dead.
_NEEDED: Final = "autovacuum_vacuum_scale_factor"

# The table itself, or where it is partitioned its partitions: parameters belong to what holds rows.
_PARAMETERS = """
SELECT c.oid::regclass::text, c.reloptions FROM pg_class c
WHERE c.relkind = 'r' AND (
    c.oid = to_regclass(%s) OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(%s)))
"""
# A session that has neither a snapshot nor a transaction id holds nothing back.
_HOLDERS = """
SELECT pid, extract(epoch FROM now() - xact_start), coalesce(application_name, '') FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%%' AND pid <> pg_backend_pid()
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start < now() - %s::interval
ORDER BY xact_start
"""


@dataclass(frozen=True, slots=True)
class VacuumHolder:
    """A session that sits in a transaction and does nothing."""

    pid: int
    age: timedelta
    application: str
    """What it calls itself; may be empty."""


def tables_rarely_vacuumed(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    """The table, or those of its partitions, whose storage parameters are gone or switch autovacuum off."""
    if connection.vendor != "postgresql":
        return []
    quoted = connection.ops.quote_name(table)
    with connection.cursor() as cursor:
        cursor.execute(_PARAMETERS, [quoted, quoted])
        found = cursor.fetchall()
    return sorted(name for name, options in found if _is_rarely_vacuumed(options or []))


def autovacuum_is_off(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server vacuums nothing by itself."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('autovacuum') = 'off' OR current_setting('track_counts') = 'off'"
        )
        return bool(cursor.fetchone()[0])


def vacuum_holders(connection: BaseDatabaseWrapper, older_than: timedelta) -> list[VacuumHolder]:
    """Sessions idle in a transaction for longer than that, the oldest first.

    Those of other users are seen only by a superuser or a member of ``pg_read_all_stats``.
    """
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute(_HOLDERS, [f"{older_than.total_seconds()} seconds"])
        return [
            VacuumHolder(pid, timedelta(seconds=float(age)), application)
            for pid, age, application in cursor.fetchall()
        ]


def _is_rarely_vacuumed(options: list[str]) -> bool:
    given = dict(option.partition("=")[::2] for option in options)
    is_off = given.get("autovacuum_enabled", "on").lower() in ("off", "false", "no", "0")
    return is_off or _NEEDED not in given
