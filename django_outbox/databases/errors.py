"""Which errors of a database may be retried, and which mean that the connection is gone. Said once.

Django wraps the driver's error and keeps it as the cause. PostgreSQL's drivers carry an SQLSTATE (the
appendix "PostgreSQL Error Codes"), MySQL's the server's number as first argument, SQLite's a text.
"""

from __future__ import annotations

from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError

#: Serialization failure, deadlock, lock not available within lock_timeout.
_RETRYABLE_STATES = frozenset({"40001", "40P01", "55P03"})
#: Deadlock, lock wait time-out, record changed since it was read (MariaDB, innodb_snapshot_isolation).
_RETRYABLE_NUMBERS = frozenset({1213, 1205, 1020})

#: Class 08 is added below: connection exceptions. The others: shut down, crashed, not yet started,
#: session time-outs, too many connections, and a server that has become a standby.
_GONE_STATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300", "25006"})
#: Too many connections, shutdown, cannot connect, gone away, lost, killed, idle too long, read-only.
_GONE_NUMBERS = frozenset(
    {0, 1040, 1053, 1129, 1203, 1290, 1792, 1836, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)
#: The server gives a statement up: a time-out of its own (or somebody who cancels it), and class 53,
#: which is added below: no room on the disk, no memory, no connection left.
_OVERLOADED_STATES = frozenset({"57014"})
#: No room, no memory, temporary space; time-outs of statements (MySQL, MariaDB); a cancelled statement.
_OVERLOADED_NUMBERS = frozenset({1021, 1037, 1038, 1041, 1114, 3024, 1969, 1317})

#: A table or a column that does not exist.
_UNKNOWN_STATES = frozenset({"42P01", "42703"})
_UNKNOWN_NUMBERS = frozenset({1146, 1054})
_UNKNOWN_TEXTS = ("no such table", "no such column", "has no column named")


def is_retryable(error: BaseException) -> bool:
    """Whether the whole transaction, run again, may succeed: the database took it back."""
    if not isinstance(error, DatabaseError):
        return False
    state, number, text = _identity(error)
    return (
        state in _RETRYABLE_STATES
        or number in _RETRYABLE_NUMBERS
        or ("database is locked" in text or "database table is locked" in text)
    )


def is_disconnect(error: BaseException) -> bool:
    """Whether the database went away: close the connection, wait, and start over."""
    if isinstance(error, InterfaceError):
        return True
    if not isinstance(error, DatabaseError):
        return False
    state, number, _text = _identity(error)
    if state:
        return state in _GONE_STATES or state.startswith("08")
    if number is not None:
        return number in _GONE_NUMBERS
    # libpq reports a connection that broke, or could not be made, without any state.
    return isinstance(error, OperationalError) and _is_of_postgresql(error)


def may_pass(error: BaseException) -> bool:
    """Whether the same work may succeed later: the database is away, too busy, or others hold a lock."""
    return is_disconnect(error) or is_retryable(error) or _is_overload(error)


def is_unmigrated(error: BaseException) -> bool:
    """Whether a table or a column is missing: migrations have not run on this database, or not all."""
    if not isinstance(error, DatabaseError):
        return False
    state, number, text = _identity(error)
    if state or number is not None:
        return state in _UNKNOWN_STATES or number in _UNKNOWN_NUMBERS
    return any(known in text for known in _UNKNOWN_TEXTS)


def _is_overload(error: BaseException) -> bool:
    if not isinstance(error, DatabaseError):
        return False
    state, number, text = _identity(error)
    if state:
        return state in _OVERLOADED_STATES or state.startswith("53")
    if number is not None:
        return number in _OVERLOADED_NUMBERS
    return "database or disk is full" in text


def is_serialization_failure(error: BaseException) -> bool:
    """Whether PostgreSQL met a row that was committed after the transaction's snapshot."""
    return isinstance(error, DatabaseError) and _identity(error)[0] == "40001"


def is_lock_timeout(error: BaseException) -> bool:
    """Whether PostgreSQL gave up waiting for a lock, after ``lock_timeout``."""
    return isinstance(error, DatabaseError) and _identity(error)[0] == "55P03"


def is_duplicate_key(error: BaseException) -> bool:
    """Whether MySQL or MariaDB refused a row because a unique key has its value already."""
    return isinstance(error, DatabaseError) and _identity(error)[1] == 1062


def _identity(error: DatabaseError) -> tuple[str, int | None, str]:
    """PostgreSQL's SQLSTATE, or MySQL's error number, and the text, as far as the driver gives them.

    Some drivers of MySQL know an SQLSTATE as well, which says less than the number.
    """
    cause = error.__cause__ or error
    number = cause.args[0] if cause.args and isinstance(cause.args[0], int) else None
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or ""
    return "" if number is not None else str(state), number, str(cause)


def _is_of_postgresql(error: DatabaseError) -> bool:
    return type(error.__cause__ or error).__module__.split(".")[0] in {"psycopg", "psycopg2"}
