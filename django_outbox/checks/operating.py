"""With ``--deploy --database ALIAS``: how the outbox that runs there is doing, and what hampers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.checks import CheckMessage
from django.db import Error as DatabaseError
from django.db import connections
from django.db.models import F

from django_outbox.conf import outbox_settings, settings_problems
from django_outbox.databases import outbox_alias
from django_outbox.databases.clock import DatabaseNow
from django_outbox.databases.vacuuming import (
    autovacuum_is_off,
    tables_rarely_vacuumed,
    vacuum_holders,
)
from django_outbox.models import OutboxMessage, RelayProcess


def check_operation(
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """A relay works, nothing waits for too long, and the table is vacuumed.

    Says nothing where the tables do not exist yet: ``migrate`` runs checks too.
    """
    if settings_problems() or outbox_alias() not in (databases or ()):
        return []
    alias = outbox_alias()
    try:
        tables = connections[alias].introspection.table_names()
        if RelayProcess._meta.db_table not in tables:
            return []
        return [*_relays(alias), *_backlog(alias), *_vacuum(alias)]
    except DatabaseError as error:
        return [not_readable(alias, type(error.__cause__ or error).__name__)]


def _relays(alias: str) -> Iterator[CheckMessage]:
    relays = RelayProcess.objects.using(alias)
    last = relays.order_by("-seen_at").values_list("seen_at", flat=True).first()
    silent = DatabaseNow() - outbox_settings().alert_age
    if last is None or not relays.filter(seen_at__gt=silent).exists():
        yield no_relay_seen(alias, last)


def _backlog(alias: str) -> Iterator[CheckMessage]:
    limit = outbox_settings().alert_age
    late = OutboxMessage.objects.using(alias).due().order_by("available_at", "id")
    oldest = (
        late.filter(available_at__lt=DatabaseNow() - limit)
        .annotate(now=DatabaseNow())
        .values_list("now", F("available_at"))
        .first()
    )
    if oldest is not None:
        now, available_at = oldest
        yield message_waits(alias, now - available_at, limit)


def _vacuum(alias: str) -> Iterator[CheckMessage]:
    connection = connections[alias]
    rarely = tables_rarely_vacuumed(connection, OutboxMessage._meta.db_table)
    if rarely:
        yield rarely_vacuumed(rarely)
    if autovacuum_is_off(connection):
        yield no_autovacuum(alias)
    for holder in vacuum_holders(connection, outbox_settings().alert_age):
        yield vacuum_held_back(holder.pid, holder.age, holder.application)


def no_relay_seen(alias: str, last: datetime | None) -> checks.Warning:
    since = "yet" if last is None else f"since {last:%Y-%m-%d %H:%M:%S %Z}"
    return checks.Warning(
        f"No relay has been at work on the database {alias!r} {since}: nothing is published.",
        hint="Start manage.py outbox_relay, or schedule django_outbox.tasks.relay.",
        id="django_outbox.W020",
    )


def message_waits(alias: str, age: timedelta, limit: timedelta) -> checks.Warning:
    return checks.Warning(
        f"A message in the database {alias!r} has been due for {_spoken(age)}, longer than"
        f" OUTBOX['ALERT_AGE'] ({_spoken(limit)}).",
        hint="manage.py outbox_stats says what waits, and for what.",
        id="django_outbox.W021",
    )


def rarely_vacuumed(tables: Sequence[str]) -> checks.Warning:
    return checks.Warning(
        f"{', '.join(tables)}: the storage parameters by which autovacuum comes soon enough are not"
        " set. Dead rows pile up, and claims become slow.",
        hint="The migrations set them. If the table was restored or made by hand: ALTER TABLE … SET"
        " (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000).",
        id="django_outbox.W022",
    )


def vacuum_held_back(pid: int, age: timedelta, application: str) -> checks.Warning:
    named = f" ({application})" if application else ""
    return checks.Warning(
        f"The session {pid}{named} has been idle in a transaction for {_spoken(age)}: no dead row that"
        " is younger can be vacuumed, and claims become slow.",
        hint=f"Find out what left it open. SELECT pg_terminate_backend({pid}) ends it;"
        " idle_in_transaction_session_timeout ends the next one by itself.",
        id="django_outbox.W023",
    )


def no_autovacuum(alias: str) -> checks.Warning:
    return checks.Warning(
        f"The server of the database {alias!r} has autovacuum switched off.",
        hint="Switch autovacuum and track_counts on, or vacuum the outbox every few minutes.",
        id="django_outbox.W027",
    )


def not_readable(alias: str, error: str) -> checks.Warning:
    return checks.Warning(
        f"The outbox in the database {alias!r} cannot be read ({error}): nothing is known of it.",
        hint="Run the check where the service runs, as its database user.",
        id="django_outbox.W028",
    )


def _spoken(duration: timedelta) -> str:
    return str(timedelta(seconds=round(duration.total_seconds())))
