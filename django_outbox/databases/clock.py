"""The database's clock, which decides everywhere what is due, leased or old.

Named by migrations, so the path is fixed.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone


class DatabaseNow(Now):
    """Now, in the terms in which Django stores times.

    ``Now()`` gives the session's wall clock on MySQL and MariaDB, while Django stores UTC there: on a
    server that is not set to UTC the two are hours apart.
    """

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **context)


def as_stored(value: datetime, connection: BaseDatabaseWrapper) -> datetime:
    """A time of the caller's as a parameter of raw SQL. A naive one is in the project's time zone."""
    if timezone.is_naive(value):
        value = timezone.make_aware(value)
    if connection.features.supports_timezones:
        return value
    return value.astimezone(UTC).replace(tzinfo=None)


def as_aware(value: datetime | str, connection: BaseDatabaseWrapper) -> datetime:
    """A time that came out of raw SQL, with its zone."""
    if isinstance(value, str):  # SQLite stores text
        value = datetime.fromisoformat(value)
    if value.tzinfo is not None:
        return value
    # PostgreSQL hands out wall clocks of the project's zone where USE_TZ is off; the others hold UTC.
    zone: tzinfo = (
        timezone.get_default_timezone() if connection.features.supports_timezones else UTC
    )
    return value.replace(tzinfo=zone)


def as_model_value(value: datetime | str, connection: BaseDatabaseWrapper) -> datetime:
    """A time that came out of raw SQL, as Django would load it into a field."""
    aware = as_aware(value, connection)
    return aware if settings.USE_TZ else aware.replace(tzinfo=None)
