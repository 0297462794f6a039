"""Sentry's trace goes through table and broker; its events are caught before they leave the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_outbox.consumers.bulk import process_batch
from django_outbox.consumers.inbox import process_once
from django_outbox.consumers.registry import Consumer
from django_outbox.contrib import sentry as outbox_sentry
from django_outbox.contrib.sentry.apps import SentryConfig
from django_outbox.messages import Message
from django_outbox.observers import is_observed
from tests.support.journeys import consume, produce, relay_all
from tests.support.messages import received
from tests.support.plants import plant
from tests.testapp.models import LedgerEntry

__all__ = ["plant"]


class Capturing(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.sent: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.sent += [item.payload.json for item in envelope.items if item.type == "transaction"]


@pytest.fixture
def sentry() -> Iterator[Capturing]:
    transport = Capturing()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(
            "http://key@sentry.invalid/1",
            transport=transport,
            traces_sample_rate=1.0,
            default_integrations=False,
            auto_enabling_integrations=False,
        )
        outbox_sentry.install()
        yield transport
        outbox_sentry.uninstall()
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)


def spans_of(event: Any) -> list[Any]:
    return [span for span in event["spans"] if span["op"].startswith("queue.")]


def book(message: Message) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id))


def test_the_trace_goes_on_in_the_consumer(database, plant, settings, sentry):
    settings.OUTBOX = plant.outbox
    with sentry_sdk.start_transaction(op="http.server", name="issue invoice"):
        row = produce(aggregate=("invoice", "a-person-s-id"), correlation_id="a-person-s-mail")
    assert set(row.headers) == {"sentry-trace", "baggage"}
    relay_all()
    consume(plant, Consumer(name="ledger", patterns=("#",), handler=book))
    producer, consumer = sentry.sent
    (published,) = spans_of(producer)
    assert published["op"] == "queue.publish"
    trace = consumer["contexts"]["trace"]
    assert trace["trace_id"] == producer["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == published["span_id"]
    assert consumer["transaction"] == "ledger"
    (processed,) = spans_of(consumer)
    assert processed["data"]["messaging.message.id"] == str(row.message_id)
    assert processed["data"]["messaging.message.receive.latency"] >= 0
    assert "a-person-s" not in str(sentry.sent)


def test_inside_another_transaction_the_span_is_part_of_it(database, sentry):
    with sentry_sdk.start_transaction(op="queue.task.celery", name="ledger.book"):
        process_once(Consumer(name="ledger", handler=book), received())
    (event,) = sentry.sent
    assert [span["op"] for span in spans_of(event)] == ["queue.process"]


def test_a_batch_is_a_trace_of_its_own(database, sentry):
    messages = [received(), received()]
    process_batch(Consumer(name="ledger", handler=len, batch=10), messages, print)
    (event,) = sentry.sent
    assert event["contexts"]["trace"]["parent_span_id"] is None


def test_a_trace_that_the_caller_gives_is_kept(database, sentry):
    given = "d49d9bf66f13450b81f65bc51cf49c03-1cc4b26ab9094ef0-1"
    assert produce(headers={"sentry-trace": given}).headers == {"sentry-trace": given}


def test_a_handler_that_raises_marks_the_transaction_as_failed_and_raises_on(database, sentry):
    def handle(message: Message) -> None:
        raise ValueError("Ada Lovelace")

    with pytest.raises(ValueError, match="Ada"):
        process_once(Consumer(name="ledger", handler=handle), received())
    (event,) = sentry.sent
    assert event["contexts"]["trace"]["status"] == "internal_error"
    assert "Ada" not in str(event)


def test_without_sentry_nothing_is_carried(database):
    outbox_sentry.install()
    try:
        assert not sentry_sdk.is_initialized()
        assert produce().headers == {}
        process_once(Consumer(name="ledger", handler=book), received())
    finally:
        outbox_sentry.uninstall()
    assert LedgerEntry.objects.count() == 1


def test_the_app_turns_it_on():
    try:
        SentryConfig.create("django_outbox.contrib.sentry").ready()
        assert is_observed()
    finally:
        outbox_sentry.uninstall()
