"""The outbox partitioned by month, as a project's migration does it, for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connections
from django.db.migrations.state import ProjectState
from pytest_django.plugin import DjangoDbBlocker

from django_outbox.databases import Database
from django_outbox.databases.partitioning import PartitionOutbox
from tests.conftest import empty_tables, point_default_at
from tests.support import services


def migrate(*, back: bool = False) -> None:
    """Apply the operation on ``default``, or take it back."""
    state = ProjectState.from_apps(apps)
    operation = PartitionOutbox()
    work: Any = operation.database_backwards if back else operation.database_forwards
    with connections["default"].schema_editor() as editor:
        work("shop", editor, state, state)


@pytest.fixture(scope="module")
def partitioned(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """From here to the end of the module."""
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    with django_db_blocker.unblock():
        point_default_at("postgresql")
        empty_tables()
        migrate()
        connections["default"].close()
    yield
    with django_db_blocker.unblock():
        point_default_at("postgresql")
        empty_tables()
        migrate(back=True)
        connections["default"].close()


@pytest.fixture
def database(partitioned: None, database: Database) -> Database:
    """In the place of the one in conftest: PostgreSQL, partitioned."""
    return database
