"""The database's clock, which decides everywhere what is due, leased or old.

Named by migrations, so the path is fixed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DatabaseNow(Now):
    """Now, in the terms in which Django stores times.

    ``Now()`` gives the session's wall clock on MySQL and MariaDB, while Django stores UTC there: on a
    server that is not set to UTC the two are hours apart.
    """

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **context)


def sql_of_now(connection: BaseDatabaseWrapper) -> tuple[str, Any]:
    """``DatabaseNow`` for raw SQL, with its parameters."""
    query = Query(None)
    sql, params = query.get_compiler(connection=connection).compile(
        DatabaseNow().resolve_expression(query)
    )
    return sql, params


def read_clock(alias: str) -> datetime:
    """What time it is for the database of this alias, in UTC."""
    connection = connections[alias]
    sql, params = sql_of_now(connection)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}", params)
        return as_moment(cursor.fetchone()[0], connection)


def as_stored(value: datetime, connection: BaseDatabaseWrapper) -> datetime:
    """A time of the caller's as a parameter of raw SQL. A naive one is in the project's time zone."""
    if timezone.is_naive(value):
        value = timezone.make_aware(value)
    if connection.features.supports_timezones:
        return value
    return value.astimezone(UTC).replace(tzinfo=None)


def as_aware(value: datetime | str | int) -> datetime:
    """A time that came out of raw SQL, in UTC.

    PostgreSQL is asked for microseconds since 1970 or for text with an offset, because its drivers
    read a timestamp in Python; MySQL gives a naive time, SQLite a text without an offset.
    """
    if isinstance(value, int):
        return EPOCH + timedelta(microseconds=value)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def as_moment(value: datetime | str, connection: BaseDatabaseWrapper) -> datetime:
    """A time that came out of raw SQL through Django's cursor, in UTC, whatever ``USE_TZ`` says."""
    if connection.features.supports_timezones and isinstance(value, datetime):
        # With USE_TZ off the driver hands out the project's wall clock.
        value = timezone.make_aware(value) if timezone.is_naive(value) else value
    return as_aware(value)


def as_utc(value: datetime) -> datetime:
    """A time that Django has loaded, in UTC. With ``USE_TZ`` off it is in the project's time zone."""
    return (timezone.make_aware(value) if timezone.is_naive(value) else value).astimezone(UTC)


def as_model_value(value: datetime | str) -> datetime:
    """A time that came out of raw SQL, as Django would load it into a field."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if settings.USE_TZ:
        return as_aware(value)
    # With USE_TZ off PostgreSQL hands out the project's wall clock, the others what is stored.
    return value if value.tzinfo is None else timezone.make_naive(value)
