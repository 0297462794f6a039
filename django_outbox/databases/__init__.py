"""The only place that knows a database vendor."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from django.db import connections, router

from django_outbox.conf import outbox_settings
from django_outbox.databases.base import Database

#: Django's vendor name -> the module's class.
_VENDORS = {
    "postgresql": ("django_outbox.databases.postgresql", "PostgreSQL"),
    "mysql": ("django_outbox.databases.mysql", "MySQL"),
    "sqlite": ("django_outbox.databases.sqlite", "SQLite"),
}
#: As ``connection.vendor`` names them.
KNOWN_VENDORS = tuple(_VENDORS)

__all__ = ["KNOWN_VENDORS", "Database", "database_for", "outbox_alias"]


def database_for(alias: str) -> Database:
    """The outbox's view of this alias. Raises ``NotSupportedError`` for a vendor nobody wrote."""
    return _make(connections[alias].vendor, alias)


def outbox_alias() -> str:
    """The alias that outbox rows are written to: ``OUTBOX["DATABASE"]``, or what the routers say."""
    from django_outbox.models import OutboxMessage  # which import this package

    return outbox_settings().database or router.db_for_write(OutboxMessage)


@lru_cache(maxsize=64)
def _make(vendor: str, alias: str) -> Database:
    from django.db import NotSupportedError

    if vendor not in _VENDORS:
        raise NotSupportedError(
            f"django_outbox does not know the database vendor {vendor!r} (alias {alias!r});"
            f" it runs on {', '.join(_VENDORS)}."
        )
    module, name = _VENDORS[vendor]
    made: Database = getattr(import_module(module), name)(alias)
    return made
