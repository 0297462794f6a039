"""Sleeping until rows are written, with PostgreSQL's LISTEN and NOTIFY, and waking only who sleeps.

NOTIFY takes a lock of the whole server at each commit, which would slow down every producer. So a
relay announces its sleep by an exclusive advisory lock, and producers, through the trigger on the
table, try for a shared one: they get it while all relays are busy, keep it to the end of their
transaction, and notify only when they do not get it.

No wake-up is lost. The sleeper has its lock only after every transaction that wrote without notifying
has ended; then it looks for their rows once more. Whoever writes later notifies.
"""

from __future__ import annotations

import logging
import selectors
import time
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_outbox.databases.base import WorkListener
from django_outbox.databases.connecting import own_connection
from django_outbox.databases.errors import is_disconnect, is_lock_timeout

logger = logging.getLogger(__name__)

#: "ob", the upper two bytes of the advisory locks that belong to an outbox's table.
_LOCK_SPACE = 0x6F62 << 48
CLAIM_LOCK, SLEEP_LOCK = 1, 2

#: Milliseconds for which the announcement may wait for open transactions of producers.
ANNOUNCE_TIMEOUT = 100


def lock_key(oid: str, number: int) -> str:
    """SQL of an advisory lock's key that belongs to the table with that OID (an SQL expression).

    A trigger made by a migration holds it too: it may only change together with that.
    """
    return f"({_LOCK_SPACE} + ({oid}::bigint << 8) + {number})"


def channel_of(oid: str) -> str:
    """SQL of the name of the channel on which new rows of that table are announced."""
    return f"'django_outbox_' || {oid}"


class PostgreSQLListener(WorkListener):
    """Listens on a connection of its own, in autocommit. A lost connection means polling meanwhile."""

    def __init__(self, alias: str, table: str) -> None:
        self._alias = alias
        self._table = table
        self._connection: BaseDatabaseWrapper | None = None
        self._key = ""
        self._announced = False
        self._heard = False

    def prepare(self) -> bool:
        try:
            connection = self._connected()
            self._heard = False
            self._announced = self._lock(connection)
        except (DatabaseError, InterfaceError) as error:
            self._lose(error)
        return self._announced

    def wait(self, seconds: float, wake_fd: int | None = None) -> bool:
        try:
            return self._wait(seconds, wake_fd)
        finally:
            self.cancel()

    def cancel(self) -> None:
        if self._announced and self._connection is not None:
            self._announced = False
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(f"SELECT pg_advisory_unlock({self._key})")
            except (DatabaseError, InterfaceError) as error:
                self._lose(error)

    def close(self) -> None:
        self._announced = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> BaseDatabaseWrapper:
        if self._connection is None:
            connection = own_connection(self._alias)
            with connection.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = '{ANNOUNCE_TIMEOUT}ms'")
                cursor.execute("SET statement_timeout = 0")
                cursor.execute("SELECT %s::regclass::oid", [self._table])
                (oid,) = cursor.fetchone()
                cursor.execute(f'LISTEN "django_outbox_{oid}"')
            connection.connection.add_notify_handler(self._hear)
            self._key = lock_key(str(oid), SLEEP_LOCK)
            self._connection = connection
            logger.info(
                "Listening for new messages.",
                extra={"event": "listening", "database": self._alias},
            )
        return self._connection

    def _lock(self, connection: BaseDatabaseWrapper) -> bool:
        """Wait for those who write without notifying, but not for long: they may be slow."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT pg_advisory_lock({self._key})")
        except DatabaseError as error:
            if is_lock_timeout(error):
                return False
            raise
        return True

    def _wait(self, seconds: float, wake_fd: int | None) -> bool:
        deadline = time.monotonic() + seconds
        while not self._heard and (left := deadline - time.monotonic()) > 0:
            try:
                readable = self._readable(left, wake_fd)
                if wake_fd in readable:
                    break
                if readable:
                    self._read()
            except (DatabaseError, InterfaceError) as error:
                self._lose(error)
        return self._heard

    def _readable(self, seconds: float, wake_fd: int | None) -> set[int]:
        """Which descriptors have something to read, after at most that long."""
        with selectors.DefaultSelector() as selector:
            if wake_fd is not None:
                selector.register(wake_fd, selectors.EVENT_READ)
            if (connection := self._connection) is not None:
                with connection.wrap_database_errors:
                    selector.register(connection.connection.fileno(), selectors.EVENT_READ)
            return {key.fd for key, _events in selector.select(seconds)}

    def _read(self) -> None:
        if (connection := self._connection) is not None:
            with connection.wrap_database_errors:
                libpq = connection.connection.pgconn
                libpq.consume_input()
                while libpq.notifies() is not None:
                    self._heard = True

    def _hear(self, _notify: Any) -> None:
        # For those that arrive together with the answer to a statement.
        self._heard = True

    def _lose(self, error: Exception) -> None:
        if not is_disconnect(error):
            raise error
        logger.warning(
            "Lost the connection that listens for new messages (%s); polling meanwhile.",
            type(error).__name__,
            extra={"event": "listening_lost", "database": self._alias},
        )
        self.close()
