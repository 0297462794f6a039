"""What is received from RabbitMQ, by whom, and a delivery read: bytes to ``Message``, or why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from django_outbox.brokers.rabbitmq.asides import failed_attempts, first_routing_key
from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.brokers.rabbitmq.subscription import Delivery
from django_outbox.brokers.rabbitmq.topology import Topology, WorkQueue
from django_outbox.brokers.rabbitmq.topology_options import connection_settings, topology
from django_outbox.conf import outbox_settings
from django_outbox.consumers.delivery import retry_policy
from django_outbox.consumers.registry import Consumer, all_consumers, consumer_named
from django_outbox.exceptions import ImproperlyConfiguredOutbox, MalformedMessage
from django_outbox.messages import Message
from django_outbox.wire.amqp import from_amqp


@dataclass(frozen=True, slots=True)
class Intake:
    """What is received, by whom, and how much of it at a time."""

    queues: tuple[str, ...]
    """Queues, or partitioned queues by the name that their partitions share."""
    consumers: tuple[Consumer, ...]
    topology: Topology
    connection: ConnectionOptions
    prefetch: int = 100
    """Deliveries that the broker hands over ahead of their acks, per queue."""

    @property
    def batch(self) -> int:
        """How many deliveries are handled together."""
        return max((consumer.batch or 1 for consumer in self.consumers), default=1)

    @property
    def consumed(self) -> tuple[str, ...]:
        """The queues to subscribe to, every partition by itself."""
        return tuple(name for queue in self.queues for name in self._partitions(queue))

    def work_queue(self, name: str) -> WorkQueue:
        """The work queue behind a queue's name; unless configured, with the default names around it."""
        return self.topology.queue_of(name) or WorkQueue(name)

    def takers(self, topic: str) -> tuple[Consumer, ...]:
        """The consumers that take this topic."""
        return tuple(each for each in self.consumers if each.takes(topic))

    def _partitions(self, queue: str) -> tuple[str, ...]:
        work_queue = self.work_queue(queue)
        return work_queue.names if queue == work_queue.name else (queue,)


def read_intake(queues: Sequence[str], names: Sequence[str] = (), prefetch: int = 100) -> Intake:
    """What to receive from these queues, for the named consumers or for all, as the settings say.

    Raises ``ImproperlyConfiguredOutbox`` where something is wrong or no consumer is declared, and
    ``UnknownConsumer`` for a name without one.
    """
    connection, problems = read_connection_options(*connection_settings())
    if connection is None:
        raise ImproperlyConfiguredOutbox("\n".join(f"{what} {hint}" for what, hint in problems))
    if not 1 <= prefetch <= 65_535:
        raise ImproperlyConfiguredOutbox("The prefetch must be between 1 and 65,535.")
    consumers = [consumer_named(name) for name in names] if names else all_consumers()
    if not consumers:
        raise ImproperlyConfiguredOutbox(
            "No consumer is declared. Declare one by @consumer in a consumers.py."
        )
    return Intake(tuple(queues), tuple(consumers), topology(), connection, prefetch)


@dataclass(frozen=True, slots=True)
class Received:
    """A delivery that could be read, and who takes it."""

    delivery: Delivery
    queue: WorkQueue
    message: Message = field(repr=False)
    consumers: tuple[Consumer, ...]

    @property
    def most_attempts(self) -> int:
        """How many attempts the most patient of its consumers makes."""
        return max(retry_policy(consumer).max_attempts for consumer in self.consumers)

    @property
    def is_for_batches(self) -> bool:
        """Whether it may be handled together with others."""
        return not self.queue.is_ordered and any(each.batch for each in self.consumers)

    def at_attempt(self, attempt: int) -> Received:
        """The same, with another number of the attempt."""
        return replace(self, message=replace(self.message, attempt=attempt))


def read(intake: Intake, delivery: Delivery) -> Received:
    """The message in a delivery, and who takes it.

    Raises ``MalformedMessage`` where it cannot be read, also where its body is not JSON or larger
    than ``OUTBOX["MAX_MESSAGE_BYTES"]``, and where no consumer takes its topic.
    """
    size, largest = len(delivery.body), outbox_settings().max_message_bytes
    if size > largest:
        raise MalformedMessage(
            "body", f"has {size:,} bytes; OUTBOX['MAX_MESSAGE_BYTES'] allows {largest:,}"
        )
    if delivery.properties.fault:
        raise MalformedMessage("message:", delivery.properties.fault)
    routing_key = first_routing_key(delivery)
    attempt = failed_attempts(delivery.headers) + 1
    message = from_amqp(
        delivery.properties, delivery.body, routing_key=routing_key, attempt=attempt
    )
    try:
        json.loads(message.body)  # not kept: every handler has a payload of its own
    except (ValueError, RecursionError):
        raise MalformedMessage("body", "is not JSON") from None
    consumers = intake.takers(message.topic)
    if not consumers:
        raise MalformedMessage("topic", "is taken by no consumer of this queue")
    return Received(delivery, intake.work_queue(delivery.queue), message, consumers)
