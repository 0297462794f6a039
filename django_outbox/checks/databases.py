"""The database that the outbox lies in: that it exists, can do the work, and is the business's own.

No connection is opened unless ``check --database`` names the alias.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from django_outbox.conf import outbox_settings, settings_problems
from django_outbox.databases import KNOWN_VENDORS, database_for, outbox_alias
from django_outbox.databases.base import AUTOCOMMIT_IS_OFF
from django_outbox.models import OutboxMessage

#: Apps that bring tables but no business: theirs may lie anywhere.
_NOT_BUSINESS = ("django.contrib.", "django_outbox")
#: Django's name for it in OPTIONS; the default of its MySQL backend.
_READ_COMMITTED = "read committed"


def check_database(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The outbox's alias exists, its tables are made there, and its vendor is known."""
    if settings_problems():
        return []
    alias = outbox_alias()
    if alias not in connections.settings:
        return [no_such_database(alias, sorted(connections.settings))]
    vendor = connections[alias].vendor
    if vendor not in KNOWN_VENDORS:
        return [unknown_vendor(alias, vendor)]
    found: list[CheckMessage] = []
    if not router.allow_migrate_model(alias, OutboxMessage):
        found.append(tables_not_allowed(alias))
    if outbox_settings().wakeup == "notify" and not database_for(alias).supports_notify:
        found.append(notify_without_postgresql(alias, vendor))
    if not connections[alias].settings_dict["AUTOCOMMIT"]:
        found.append(autocommit_off(alias))
    if vendor == "sqlite" and not _begins_immediate(connections[alias]):
        found.append(sqlite_not_immediate(alias))
    if vendor == "mysql" and _chosen_isolation(connections[alias]) not in (_READ_COMMITTED, None):
        found.append(mysql_isolation(alias, _chosen_isolation(connections[alias])))
    found += [unfit_database(*problem) for problem in database_for(alias).problems()]
    return found


def check_business_models(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The business is written to the outbox's database, or no transaction can hold both."""
    if settings_problems():
        return []
    alias = outbox_alias()
    if alias not in connections.settings:
        return []  # check_database says so
    elsewhere: dict[str, list[str]] = defaultdict(list)
    beside = False
    for app in apps.get_app_configs():
        if app.name.startswith(_NOT_BUSINESS):
            continue
        for model in app.get_models():
            if not model._meta.managed or model._meta.proxy:
                continue
            written_to = router.db_for_write(model)
            if written_to == alias:
                beside = True
            else:
                elsewhere[written_to].append(model._meta.label)
    if elsewhere and not beside:
        return [no_business_beside_the_outbox(alias, sorted(elsewhere))]
    return [business_elsewhere(alias, other, labels) for other, labels in sorted(elsewhere.items())]


def check_server(
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """With ``--database``: the server itself can do what a claim asks of it."""
    if settings_problems() or outbox_alias() not in (databases or ()):
        return []
    connection = connections[outbox_alias()]
    if connection.vendor not in ("postgresql", "mysql"):
        return []
    found: list[CheckMessage] = []
    if not connection.features.has_select_for_update_skip_locked:
        found.append(no_skip_locked(connection.alias))
    if connection.vendor == "mysql" and _chosen_isolation(connection) is None:
        isolation = _isolation_of_server(connection)
        if isolation != _READ_COMMITTED:
            found.append(mysql_isolation(connection.alias, isolation))
    problems = database_for(connection.alias).server_problems()
    return found + [unfit_server(*problem) for problem in problems]


def _begins_immediate(connection: BaseDatabaseWrapper) -> bool:
    # A database in memory belongs to one process: nobody else can hold its lock.
    if connection.is_in_memory_db():  # type: ignore[attr-defined]
        return True
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or ""
    return str(mode).upper() in ("IMMEDIATE", "EXCLUSIVE")


def _chosen_isolation(connection: BaseDatabaseWrapper) -> str | None:
    """What OPTIONS say, Django's own default, or None: whatever the server is set to."""
    chosen = connection.settings_dict["OPTIONS"].get("isolation_level", _READ_COMMITTED)
    return None if chosen is None else str(chosen).lower()


def _isolation_of_server(connection: BaseDatabaseWrapper) -> str:
    # The variable has one name that MariaDB of all versions knows, and another that MySQL 8 knows.
    name = "tx_isolation" if connection.mysql_is_mariadb else "transaction_isolation"  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@{name}")
        return str(cursor.fetchone()[0]).lower().replace("-", " ")


def no_such_database(alias: str, known: Sequence[str]) -> Error:
    return Error(
        f"The outbox is to be written to the database {alias!r}, which is not in DATABASES.",
        hint=f"Correct OUTBOX['DATABASE'] or the router. Known aliases: {', '.join(known)}.",
        id="django_outbox.E010",
    )


def unknown_vendor(alias: str, vendor: str) -> Error:
    return Error(
        f"The outbox is to be written to the database {alias!r}, whose vendor is {vendor!r}.",
        hint=f"django_outbox runs on {', '.join(sorted(KNOWN_VENDORS))}.",
        id="django_outbox.E011",
    )


def notify_without_postgresql(alias: str, vendor: str) -> Error:
    return Error(
        f"OUTBOX['WAKEUP'] is 'notify', which the database {alias!r} ({vendor}) cannot do.",
        hint="Only PostgreSQL with the driver psycopg 3 can wake a relay. Use 'poll'.",
        id="django_outbox.E012",
    )


def no_business_beside_the_outbox(alias: str, others: Sequence[str]) -> Error:
    return Error(
        f"The outbox is written to the database {alias!r}, but every model of this project to"
        f" another ({', '.join(others)}): no transaction can hold both.",
        hint="Put the outbox into the database of the models whose events it takes: set"
        " OUTBOX['DATABASE'], or route the app django_outbox.",
        id="django_outbox.E013",
    )


def tables_not_allowed(alias: str) -> Error:
    return Error(
        f"The routers do not let the outbox's tables be made in the database {alias!r}.",
        hint="Let allow_migrate() return True or None for the app django_outbox there.",
        id="django_outbox.E014",
    )


def no_skip_locked(alias: str) -> Error:
    return Error(
        f"The server of the database {alias!r} does not know SKIP LOCKED: relays would wait for each"
        " other.",
        hint="Use MySQL 8.0.1, MariaDB 10.6 or a later version.",
        id="django_outbox.E015",
    )


def autocommit_off(alias: str) -> Error:
    return Error(
        AUTOCOMMIT_IS_OFF.format(alias=alias),
        hint="Leave AUTOCOMMIT out of the alias's settings. A view or a task that manages its"
        " transaction by hand may call set_autocommit(False) for itself.",
        id="django_outbox.E016",
    )


def business_elsewhere(alias: str, other: str, labels: Sequence[str]) -> checks.Warning:
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return checks.Warning(
        f"{', '.join(labels[:5])}{more} are written to the database {other!r}, the outbox to"
        f" {alias!r}: what happens to them cannot be enqueued in one transaction with it.",
        hint="If events of these models are enqueued, move them or the outbox. If not, silence this.",
        id="django_outbox.W010",
    )


def sqlite_not_immediate(alias: str) -> checks.Warning:
    return checks.Warning(
        f"The SQLite database {alias!r} begins its transactions as readers: beside a relay, writers"
        " fail with 'database is locked'.",
        hint="Set OPTIONS['transaction_mode'] to 'IMMEDIATE' and journal_mode to WAL by"
        " OPTIONS['init_command'].",
        id="django_outbox.W011",
    )


def mysql_isolation(alias: str, isolation: str | None) -> checks.Warning:
    return checks.Warning(
        f"The database {alias!r} runs its transactions as {isolation}: there claims and inserts can"
        " lock the gaps between rows and wait for each other.",
        hint=f"Set OPTIONS['isolation_level'] to '{_READ_COMMITTED}', Django's default.",
        id="django_outbox.W012",
    )


def unfit_database(problem: str, hint: str) -> checks.Warning:
    return checks.Warning(problem, hint=hint, id="django_outbox.W013")


def unfit_server(problem: str, hint: str) -> checks.Warning:
    return checks.Warning(problem, hint=hint, id="django_outbox.W014")
