"""A look at the database from where it is not ours: a server's thread, a health check's, a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction

View = TypeVar("View", bound=Callable[..., Any])


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


def outside_transactions(view: View) -> View:
    """Have Django open no transaction around the view, whatever database has ``ATOMIC_REQUESTS``."""
    for alias in connections:
        view = transaction.non_atomic_requests(alias)(view)
    return view
