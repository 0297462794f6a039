"""A database that cannot be reached for a while, without touching the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections


@contextmanager
def database_away(alias: str = "default") -> Iterator[None]:
    """This thread's connection is closed, and nothing listens where a new one is looked for."""
    connection = connections[alias]
    connection.close()
    address = connection.settings_dict["PORT"]
    connection.settings_dict["PORT"] = "1"
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["PORT"] = address
