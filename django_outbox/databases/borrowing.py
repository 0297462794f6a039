"""A look at the database from a thread that is not ours: a server's, a health check's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction


@contextmanager
def borrowed_connection(alias: str) -> Iterator[None]:
    """This thread's connection for a moment; afterwards it is as it was found.

    One that was closed is closed again, since a thread may live for one answer only. In a transaction
    of the caller an error ends a savepoint and not the transaction.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        with transaction.atomic(using=alias):
            yield
        return
    was_open = connection.connection is not None
    connection.close_if_unusable_or_obsolete()
    try:
        yield
    finally:
        if not was_open:
            connection.close()
