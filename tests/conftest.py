"""Fixtures of all tests: the database a test runs on, and clean tables around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connections
from django.test.utils import setup_databases, teardown_databases
from pytest_django.plugin import DjangoDbBlocker

from django_outbox import observers
from django_outbox.databases import Database, database_for
from django_outbox.publishers import locmem
from tests.support import services
from tests.support.rabbitmq import rabbitmq, rabbitmq_node, rabbitmq_publisher, rabbitmq_vhost

__all__ = ["rabbitmq", "rabbitmq_node", "rabbitmq_publisher", "rabbitmq_vhost"]

EVERY_DATABASE = ["postgresql", "mysql", "sqlite"]
_URLS = {"postgresql": services.POSTGRESQL_URL, "mysql": services.MYSQL_URL}
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MariaDB"}
#: The apps whose tables are emptied around a test.
_APPS = {"django_outbox", "django_outbox_encryption", "testapp", "encryptionapp", "admin", "auth"}


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name tests by what is short: long texts here are keys and tokens made by chance, and tests that
    are shared out among processes have to have the same names in each."""
    return argname if isinstance(val, str | bytes) and len(val) > 30 else None


def point_default_at(alias: str) -> None:
    """From here on every thread's ``default`` connection goes to this database."""
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = {**connections.settings[alias]}


def empty_tables() -> None:
    """Delete what a test has written on ``default``, as fast as each database can."""
    connection = connections["default"]
    tables = [
        model._meta.db_table
        for model in apps.get_models(include_auto_created=True)
        if model._meta.app_label in _APPS
        and model._meta.managed
        and model._meta.label_lower not in {"auth.permission"}
    ]
    with connection.constraint_checks_disabled(), connection.cursor() as cursor:
        quoted = [connection.ops.quote_name(table) for table in tables]
        if connection.vendor == "postgresql":
            cursor.execute(f"TRUNCATE {', '.join(quoted)}")
        else:
            for table in quoted:
                cursor.execute(f"DELETE FROM {table}")


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Make the test databases of every alias: any test may ask for any of them."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False)
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        teardown_databases(made, verbosity=0)


@pytest.fixture
def database(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Database]:
    """The database of the test, with real commits; tables are emptied afterwards.

    ``@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)`` runs one body on each;
    without it the test runs on the default one (PostgreSQL where it answers).
    """
    alias: str = getattr(request, "param", settings.TEST_DEFAULT_DATABASE)
    if alias in _URLS:
        services.require(_URLS[alias], _NAMES[alias])
    with django_db_blocker.unblock():
        point_default_at(alias)
        empty_tables()
        locmem.outbox.clear()  # what relays of earlier tests have published
        try:
            yield database_for("default")
        finally:
            try:
                # All of them: a test that ends a server's connections ends those of every alias.
                connections.close_all()
                empty_tables()
            finally:
                point_default_at(settings.TEST_DEFAULT_DATABASE)


@pytest.fixture(autouse=True)
def nobody_watches_afterwards() -> Iterator[None]:
    """An observer that stays behind would watch the tests after it: the one that left it fails."""
    before = observers._observers
    yield
    assert observers._observers == before


@pytest.fixture
def outbox_settings(settings: Any) -> Any:
    """Change keys of ``settings.OUTBOX`` for one test: ``outbox_settings(LEASE=5)``."""

    def change(**keys: Any) -> None:
        settings.OUTBOX = {**settings.OUTBOX, **keys}

    return change
