from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.support import services


@pytest.fixture
def postgresql_url() -> Iterator[str]:
    """The URL of a new, empty PostgreSQL database, removed afterwards."""
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    name = f"outbox_example_{uuid4().hex}"
    with psycopg.connect(services.POSTGRESQL_URL, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield services.POSTGRESQL_URL.rsplit("/", 1)[0] + f"/{name}"
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
