"""A work queue with everything around it, declared for one test and removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pika
import pytest

from django_outbox.brokers.rabbitmq.declare import declare
from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.brokers.rabbitmq.subscription import Subscription
from django_outbox.brokers.rabbitmq.topology import Exchange, Queue, Topology
from django_outbox.brokers.rabbitmq.topology_options import read_topology
from django_outbox.messages import Message
from django_outbox.wire.amqp import to_amqp
from django_outbox.wire.celery import to_celery
from tests.support.rabbitmq import Broker
from tests.support.threads import wait_until


class Plant:
    """One work queue, bound for every topic, with its wait queues and its dead-letter queue."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        mark = uuid4().hex[:10]
        self.broker = broker
        self.queue = f"work.{mark}"
        self.exchange = f"events.{mark}"
        self.settings: dict[str, Any] = {
            "URL": broker.url,
            "EXCHANGE": self.exchange,
            "QUEUES": {self.queue: {"BINDINGS": ["#"], "RETRY_DELAYS": [1], **options}},
        }
        self.topology: Topology
        self.topology, problems = read_topology(self.settings)
        assert problems == []
        connection, problems = read_connection_options({"URL": broker.url}, "the test")
        assert connection is not None
        self.connection = connection
        self.findings = list(declare(self.topology, connection))

    @property
    def outbox(self) -> dict[str, Any]:
        """``settings.OUTBOX`` for what consumes here: retries come quickly."""
        return {
            "TOPOLOGY": self.settings,
            "CONSUMERS": {"BACKOFF_BASE": 0.02, "BACKOFF_CAP": 0.1},
            "PUBLISHERS": {
                "default": {
                    "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
                    "URL": self.broker.url,
                    "EXCHANGE": self.exchange,
                }
            },
        }

    @property
    def dead_letter_queue(self) -> str:
        return f"{self.queue}.dead"

    def publish(self, message: Message, **changes: Any) -> None:
        """Publish an event; ``changes`` are properties that differ from what the outbox sends."""
        properties = to_amqp(message)
        given: dict[str, Any] = {
            "headers": dict(properties.headers),
            "message_id": properties.message_id,
            "type": properties.type,
            "content_type": properties.content_type,
            "delivery_mode": 2,
            **changes,
        }
        self.send(message.body.encode(), pika.BasicProperties(**given), message.topic)

    def call(self, message: Message, task: str, queue: str = "", **headers: Any) -> None:
        """Send the event to a Celery task, by way of the work queue or another one."""
        made = to_celery(message, task)
        properties = pika.BasicProperties(
            headers={**made.headers, **headers},
            content_type=made.content_type,
            content_encoding=made.content_encoding,
            correlation_id=made.correlation_id,
            delivery_mode=2,
        )
        self.send_to_queue(made.body.encode(), properties, queue)

    def send(self, body: bytes, properties: Any, routing_key: str = "invoice.issued") -> None:
        """Publish whatever it is to the exchange."""
        self.broker.channel.basic_publish(self.exchange, routing_key, body, properties)

    def send_to_queue(self, body: bytes, properties: Any, queue: str = "") -> None:
        """Publish whatever it is to the work queue, or another one."""
        self.broker.channel.basic_publish("", queue or self.queue, body, properties)

    def dead_letters(self, at_least: int = 0) -> list[tuple[Any, bytes]]:
        """Take everything out of the dead-letter queue, once as many are there."""
        self.wait_for_dead(at_least)
        count = self.broker.count(self.dead_letter_queue)
        subscription = Subscription(self.connection, [self.dead_letter_queue], prefetch=1000)
        taken: list[tuple[Any, bytes]] = []
        while len(taken) < count:
            for delivery in subscription.take(count, timeout=60):
                taken.append((delivery.properties, delivery.body))
                delivery.ack_for_sure()
        subscription.close()
        return taken

    def wait_for_dead(self, count: int) -> None:
        wait_until(
            lambda: self.broker.count(self.dead_letter_queue) >= count,
            f"{count} messages are dead-lettered",
            every=0.05,
        )

    def is_empty(self) -> bool:
        """Whether nothing is ready in the work queue and in the queues where messages wait."""
        work = self.topology.queues[0]
        names = [*work.names, *(name for _, name in work.wait_queues)]
        return all(self.broker.count(name) == 0 for name in names)

    def remove(self) -> None:
        for item in self.topology.items():
            if isinstance(item, Queue):
                self.broker.channel.queue_delete(item.name)
            elif isinstance(item, Exchange):
                self.broker.channel.exchange_delete(item.name)


@pytest.fixture
def plant(rabbitmq: Broker) -> Iterator[Plant]:
    """A quorum queue with its surroundings."""
    made = Plant(rabbitmq)
    yield made
    made.remove()


def reason_of(properties: Any) -> str:
    """Why a dead letter was set aside."""
    return str((properties.headers or {}).get("x-outbox-reason", ""))
