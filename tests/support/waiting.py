"""Who waits for a lock in the database, as the database itself says it."""

from __future__ import annotations

from django.db import connections

from tests.support.threads import wait_until

#: Seconds. InnoDB renews its list of transactions only when nobody has read it for 0.1 s.
_EVERY = 0.2

_WAITING = {
    "postgresql": (
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE NOT granted AND datname = current_database()"
    ),
    "mysql": (
        "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist"
        " ON trx_mysql_thread_id = id WHERE trx_state = 'LOCK WAIT' AND db = database()"
    ),
}


def wait_for_a_waiting_connection() -> None:
    """Return when a connection to this database waits for another one's lock.

    SQLite cannot say who waits: there it returns at once.
    """
    connection = connections["default"]
    if connection.vendor in _WAITING:
        wait_until(_somebody_waits, "somebody waits for a lock", every=_EVERY)
    connection.close()


def _somebody_waits() -> bool:
    connection = connections["default"]
    with connection.cursor() as cursor:
        cursor.execute(_WAITING[connection.vendor])
        return bool(cursor.fetchone()[0])
