"""An event's whole way in one process: enqueued, relayed to a real RabbitMQ, received and handled."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from django.db import transaction

from django_outbox import enqueue
from django_outbox.consumers.intake import Intake
from django_outbox.consumers.rabbitmq import QueueConsumer
from django_outbox.consumers.registry import Consumer, Handler
from django_outbox.models import OutboxMessage
from django_outbox.relay.loop import Relay
from django_outbox.relay.settle import Totals
from django_outbox.relay.shutdown import Stop
from tests.support.plants import Plant


def produce(topic: str = "invoice.issued", payload: Any = None, **options: Any) -> OutboxMessage:
    """Enqueue one event and commit."""
    with transaction.atomic():
        return enqueue(topic, {"n": 1} if payload is None else payload, **options)


def relay_all() -> Totals:
    """Publish what is due."""
    return Relay().drain()


def consume(plant: Plant, *consumers: Consumer, calls: int = 1) -> None:
    """Receive and handle in this thread, until the handlers have been called that often."""
    stop = Stop()
    left = count(calls - 1, -1)

    def counting(handler: Handler) -> Handler:
        def handle(messages: Any) -> None:
            try:
                handler(messages)
            finally:
                if next(left) <= 0:
                    stop.set()

        return handle

    counted = tuple(replace(each, handler=counting(each.handler)) for each in consumers)
    try:
        QueueConsumer(Intake((plant.queue,), counted, plant.topology, plant.connection)).run(stop)
    finally:
        stop.close()
