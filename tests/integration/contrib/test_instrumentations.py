"""OpenTelemetry's own instrumentations of pika and Celery beside the outbox: they change no message.

They are in no dependency group of this project; the tests run where they are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from django_outbox.brokers.rabbitmq.declare import declare
from django_outbox.consumers.registry import Consumer
from django_outbox.contrib import opentelemetry as outbox_tracing
from django_outbox.messages import Message
from django_outbox.publishers.registry import publisher_for
from tests.support.journeys import consume, produce, relay_all
from tests.support.plants import Plant, plant
from tests.support.threads import wait_until
from tests.testapp.models import LedgerEntry

__all__ = ["plant"]

PACKAGES = ["pika", "celery"]
CLASSES = {"pika": "PikaInstrumentor", "celery": "CeleryInstrumentor"}


@pytest.fixture(params=PACKAGES)
def instrumented(request: pytest.FixtureRequest) -> Iterator[str]:
    module = pytest.importorskip(f"opentelemetry.instrumentation.{request.param}")
    instrumentor: Any = getattr(module, CLASSES[request.param])()
    provider = TracerProvider()
    instrumentor.instrument(tracer_provider=provider)
    outbox_tracing.install(provider)
    try:
        # Whatever is current where it publishes must not get into the messages.
        with trace.use_span(provider.get_tracer("the test").start_span("unrelated")):
            yield request.param
    finally:
        outbox_tracing.uninstall()
        instrumentor.uninstrument()


def test_an_event_goes_out_and_keeps_its_own_context(
    database: Any, plant: Plant, settings: Any, instrumented: str
) -> None:
    settings.OUTBOX = plant.outbox
    row = produce()
    assert relay_all().published == 1
    assert publisher_for("default").probe() == ""
    [(properties, _)] = plant.broker.take(plant.queue)
    assert properties.headers["traceparent"] == row.headers["traceparent"]


def test_a_task_message_keeps_the_events_context(
    database: Any, plant: Plant, settings: Any, instrumented: str
) -> None:
    settings.OUTBOX = {
        "PUBLISHERS": {
            "default": {
                "BACKEND": "django_outbox.publishers.celery.CeleryPublisher",
                "URL": plant.broker.url,
                "TASKS": {"#": "ledger.book"},
                "QUEUE": plant.queue,
            }
        }
    }
    row = produce()
    assert relay_all().published == 1
    [(properties, _)] = plant.broker.take(plant.queue)
    assert properties.headers["task"] == "ledger.book"
    assert properties.headers["traceparent"] == row.headers["traceparent"]


def test_a_message_is_received_put_aside_and_received_again(
    database: Any, plant: Plant, settings: Any, instrumented: str
) -> None:
    settings.OUTBOX = plant.outbox
    tries: list[Message] = []

    def handle(message: Message) -> None:
        tries.append(message)
        if len(tries) == 1:
            raise ValueError
        LedgerEntry.objects.create(account="sales", reference=str(message.id))

    row = produce()
    relay_all()
    consume(plant, Consumer(name="ledger", patterns=("#",), handler=handle), calls=2)
    assert LedgerEntry.objects.count() == 1
    assert [each.headers["traceparent"] for each in tries] == [row.headers["traceparent"]] * 2
    wait_until(plant.is_empty, "it is acknowledged")


def test_a_topology_is_declared(plant: Plant, instrumented: str) -> None:
    assert list(declare(plant.topology, plant.connection))
