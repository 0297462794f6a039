"""Publish to one queue of RabbitMQ alone, past the exchange that all consumers are bound to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.rounds import Outgoing
from django_outbox.brokers.rabbitmq.topology import WorkQueue
from django_outbox.messages import Message
from django_outbox.publishers.base import Receipt
from django_outbox.publishers.rabbitmq import RabbitMQOptions, RabbitMQPublisher


class OneQueuePublisher(RabbitMQPublisher):
    """The messages look as always; only nobody else gets them. Confirmed and mandatory as always, too."""

    def __init__(
        self, queue: WorkQueue, connection: ConnectionOptions, confirm_timeout: float
    ) -> None:
        exchange, self._key = queue.entrance
        options = RabbitMQOptions(connection, exchange, True, confirm_timeout)
        self._begin(f"to {queue.name}", options)

    def _encode(self, messages: Sequence[Message]) -> tuple[list[Outgoing], list[Receipt]]:
        outgoing, refused = super()._encode(messages)
        return [replace(each, routing_key=self._key) for each in outgoing], refused
