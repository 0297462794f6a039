"""Connections of processes that know no requests: kept in order, and beside those that Django keeps."""

from __future__ import annotations

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


def own_connection(alias: str) -> BaseDatabaseWrapper:
    """A new connection to this database, in autocommit, that its owner closes.

    It comes from no pool (Django's option ``pool``) and goes back to none: what was set on it, what it
    listens to and the locks it holds end with it.
    """
    connection = connections.create_connection(alias)
    settings = connection.settings_dict
    options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
    connection.settings_dict = {**settings, "AUTOCOMMIT": True, "OPTIONS": options}
    return connection


def refresh(connection: BaseDatabaseWrapper) -> None:
    """Close the connection if it broke or is too old: for loops, between two turns.

    ``CONN_MAX_AGE = 0`` closes a connection at the end of a request. A loop has none: it keeps its
    connection, rather than making a new one at every poll. Nothing happens inside a transaction.
    """
    if connection.in_atomic_block:
        return
    if connection.settings_dict["CONN_MAX_AGE"] == 0:
        connection.close_at = None
    connection.close_if_unusable_or_obsolete()


def refresh_all() -> None:
    """``refresh`` every connection that this thread has."""
    for connection in connections.all(initialized_only=True):
        refresh(connection)
