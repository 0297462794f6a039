"""What an exception means for the delivery it came out of."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from django_outbox.consumers.verdicts import Failed, Failure
from django_outbox.exceptions import (
    InvalidReceivedPayload,
    MalformedMessage,
    PostponeMessage,
    RejectMessage,
    UnknownSchemaVersion,
)
from django_outbox.logs import class_name


def failure_of(error: Exception, alias: str) -> Failed:
    """Why the message was not processed. ``alias`` is the consumer's database.

    The reason is the class's name, or the text of an error of ours that holds no value. A database
    error is an outage only where the database does not answer now: a handler whose statement kills
    its own connection is charged, and so comes to an end.
    """
    match error:
        case UnknownSchemaVersion():
            return Failed(Failure.UNKNOWN_VERSION, str(error))
        case InvalidReceivedPayload():
            return Failed(Failure.INVALID, str(error))
        case MalformedMessage():
            return Failed(Failure.MALFORMED, str(error))
        case RejectMessage():
            return Failed(Failure.REJECTED, error.reason)
        case PostponeMessage():
            return Failed(Failure.POSTPONED, error.reason, error.delay)
        case OperationalError() | InterfaceError() if not database_answers(alias):
            return Failed(Failure.UNAVAILABLE, f"the database {alias!r} does not answer")
        case _:
            return Failed(Failure.RAISED, class_name(error))


def database_answers(alias: str) -> bool:
    """Whether the database can be reached now; a connection that broke is replaced on the way.

    Inside a transaction of the caller it is not tried: replacing the connection would lose it.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        return True
    try:
        connection.close()
        connection.ensure_connection()
    except DatabaseError:
        return False
    return True
