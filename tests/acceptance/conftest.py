from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from django_outbox.brokers.rabbitmq.topology import Queue
from django_outbox.brokers.rabbitmq.topology_options import read_topology
from tests.support import services
from tests.support.rabbitmq import Broker


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


@pytest.fixture
def example_broker(rabbitmq: Broker) -> Iterator[Broker]:
    """A broker that has no queue of the example, and has none again afterwards.

    Two tests give them other arguments, which a queue that is there does not take.
    """
    topology, problems = read_topology({"URL": rabbitmq.url, "QUEUES": {"ledger": {}}})
    assert problems == []

    def remove() -> None:
        for item in topology.items():
            if isinstance(item, Queue):
                rabbitmq.channel.queue_delete(item.name)

    remove()
    yield rabbitmq
    remove()
