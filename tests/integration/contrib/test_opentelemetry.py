"""One trace from the producer's transaction to the consumer's, over a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import transaction
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_outbox import enqueue
from django_outbox.consumers.bulk import process_batch
from django_outbox.consumers.inbox import process_once
from django_outbox.consumers.registry import Consumer
from django_outbox.contrib import opentelemetry as outbox_tracing
from django_outbox.contrib.opentelemetry.apps import OpenTelemetryConfig
from django_outbox.contrib.opentelemetry.tracing import LINKS_PER_SPAN, SENT_BY
from django_outbox.messages import Message
from django_outbox.observers import is_observed
from django_outbox.producer import Event, enqueue_many
from tests.support.journeys import consume, produce, relay_all
from tests.support.messages import received
from tests.support.plants import plant
from tests.testapp.models import LedgerEntry

__all__ = ["plant"]


class Traces:
    """The spans that were ended, by the first word of their name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the test")

    def named(self, word: str) -> list[ReadableSpan]:
        spans = self.exporter.get_finished_spans()
        return [span for span in spans if span.name.split()[0] == word]

    def only(self, word: str) -> Any:
        (span,) = self.named(word)
        return span


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    outbox_tracing.install(made.provider)
    yield made
    outbox_tracing.uninstall()


def linked(span: Any) -> set[int]:
    return {link.context.span_id for link in span.links}


def book(message: Message) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id))


def test_the_three_spans_of_a_message_are_one_trace_and_linked(database, plant, settings, traces):
    settings.OUTBOX = plant.outbox
    with traces.tracer.start_as_current_span("request") as request:
        row = produce(aggregate=("invoice", "a-person-s-id"), correlation_id="a-person-s-mail")
    relay_all()
    consume(plant, Consumer(name="ledger", patterns=("#",), handler=book))
    assert LedgerEntry.objects.count() == 1
    created, sent, processed = (traces.only(each) for each in ("create", "send", "process"))
    assert [created.kind, sent.kind, processed.kind] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
    ]
    assert created.parent.span_id == request.get_span_context().span_id
    assert linked(sent) == {created.context.span_id}
    assert linked(processed) == {created.context.span_id, sent.context.span_id}
    assert processed.parent.span_id == created.context.span_id
    assert processed.context.trace_id == created.context.trace_id
    assert processed.name == "process invoice.issued"
    assert dict(processed.attributes) == {
        "messaging.system": "django_outbox",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "invoice.issued",
        "messaging.message.id": str(row.message_id),
        "messaging.consumer.group.name": "ledger",
        "django_outbox.outcome": "handled",
    }
    spans = " ".join(span.to_json() for span in traces.exporter.get_finished_spans())
    assert "a-person-s" not in spans


def test_the_wire_carries_the_producers_context_and_the_row_is_never_changed(
    database, plant, settings, traces
):
    settings.OUTBOX = plant.outbox
    row = produce()
    relay_all()
    [(properties, _)] = plant.broker.take(plant.queue)
    created, sent = traces.only("create"), traces.only("send")
    assert properties.headers["traceparent"].split("-")[2] == f"{created.context.span_id:016x}"
    assert properties.headers[SENT_BY].split("-")[2] == f"{sent.context.span_id:016x}"
    row.refresh_from_db()
    assert row.headers == {"traceparent": properties.headers["traceparent"]}


def test_a_context_that_the_caller_gives_is_the_messages(database, plant, settings, traces):
    settings.OUTBOX = plant.outbox
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    row = produce(headers={"traceparent": given, "tracestate": "vendor=1"})
    relay_all()
    assert row.headers["traceparent"] == given
    assert traces.named("create") == []
    (link,) = traces.only("send").links
    assert f"{link.context.span_id:016x}" == "b7ad6b7169203331"
    assert link.context.trace_state.get("vendor") == "1"


def test_what_a_handler_enqueues_belongs_to_the_trace(database, settings, traces):
    def pass_on(message: Message) -> None:
        enqueue("invoice.booked", {})

    produce()
    process_once(Consumer(name="ledger", handler=pass_on), received())
    first, second = traces.named("create")
    assert second.name == "create invoice.booked"
    assert second.parent.span_id == traces.only("process").context.span_id
    assert first.context.trace_id != second.context.trace_id


def test_inside_another_span_the_process_span_is_its_child_and_stays_linked(database, traces):
    row = produce()
    message = received(headers=row.headers)
    with traces.tracer.start_as_current_span("celery task") as outer:
        process_once(Consumer(name="ledger", handler=book), message)
    processed = traces.only("process")
    assert processed.parent.span_id == outer.get_span_context().span_id
    assert linked(processed) == {traces.only("create").context.span_id}


def test_a_round_larger_than_the_sdks_limit_keeps_every_link(database, plant, settings, traces):
    settings.OUTBOX = plant.outbox
    count = LINKS_PER_SPAN + 5
    with transaction.atomic():
        enqueue_many([Event("invoice.issued", {"n": n}) for n in range(count)])
    relay_all()
    sends = sorted(traces.named("send"), key=lambda span: -len(span.links))
    assert [len(span.links) for span in sends] == [LINKS_PER_SPAN, 5]
    assert set().union(*map(linked, sends)) == {
        span.context.span_id for span in traces.named("create")
    }
    assert sends[0].attributes["messaging.batch.message_count"] == LINKS_PER_SPAN


def test_a_message_that_no_queue_takes_fails_its_span(database, rabbitmq, settings, traces):
    settings.OUTBOX = {
        "PUBLISHERS": {
            "default": {
                "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
                "URL": rabbitmq.url,
                "EXCHANGE": rabbitmq.exchange(),
            }
        }
    }
    produce()
    relay_all()
    sent = traces.only("send")
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.attributes["error.type"] == "returned"


def test_a_handler_that_raises_fails_its_span_without_its_words(database, traces):
    def handle(message: Message) -> None:
        raise ValueError("Ada Lovelace")

    with pytest.raises(ValueError, match="Ada"):
        process_once(Consumer(name="ledger", handler=handle), received())
    processed = traces.only("process")
    assert processed.attributes["error.type"] == "ValueError"
    assert processed.status.description == "ValueError"
    assert "Ada" not in processed.to_json()


def test_a_batch_is_one_process_span_linked_to_every_message(database, traces):
    rows = [produce(), produce("invoice.paid")]
    messages = [received(topic=row.topic, headers=row.headers) for row in rows]
    process_batch(Consumer(name="ledger", handler=len, batch=10), messages, print)
    processed = traces.only("process")
    assert processed.name == "process"
    assert linked(processed) == {span.context.span_id for span in traces.named("create")}
    assert {link.attributes["messaging.message.id"] for link in processed.links} == {
        str(message.id) for message in messages
    }


def test_without_an_sdk_messages_carry_nothing(database, settings):
    outbox_tracing.install()
    try:
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        row = produce()
        assert relay_all().published == 1
        process_once(Consumer(name="ledger", handler=book), received())
    finally:
        outbox_tracing.uninstall()
    assert row.headers == {}
    assert LedgerEntry.objects.count() == 1


def test_the_app_turns_tracing_on():
    try:
        OpenTelemetryConfig.create("django_outbox.contrib.opentelemetry").ready()
        assert is_observed()
    finally:
        outbox_tracing.uninstall()
    assert not is_observed()
    assert not apps.is_installed("django_outbox.contrib.opentelemetry")


def test_a_trace_context_that_is_none_is_passed_over(database, traces):
    message = received(headers={"traceparent": "nonsense", SENT_BY: 7})
    process_once(Consumer(name="ledger", handler=book), message)
    assert not traces.only("process").links
    assert json.loads(traces.only("process").to_json())["parent_id"] is None
