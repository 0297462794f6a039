"""Run a test at another isolation level, on all connections that are opened meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from django_outbox.databases import Database


def isolation_option(vendor: str, level: str) -> dict[str, Any]:
    """What ``OPTIONS`` of a database has to hold for it."""
    if vendor == "postgresql":
        from django.db.backends.postgresql.psycopg_any import IsolationLevel

        return {"isolation_level": IsolationLevel[level.upper().replace(" ", "_")]}
    return {"isolation_level": level} if vendor == "mysql" else {}


@pytest.fixture
def isolation(request: pytest.FixtureRequest, database: Database) -> str:
    """The level, e.g. "repeatable read"; the fixture ``database`` puts the settings back."""
    level: str = request.param
    settings = connections.settings["default"]
    options = {**settings.get("OPTIONS", {}), **isolation_option(database.vendor, level)}
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = {**settings, "OPTIONS": options}
    return level
