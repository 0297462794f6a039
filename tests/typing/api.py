"""The public API as a type checker sees it: checked by mypy, never executed.

``warn_unused_ignores`` is part of strict mode, so each ignored error below has to be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import assert_type
from uuid import UUID

from django_outbox import Message, current_context, enqueue, enqueue_many
from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.consumers import Processed, consumer, process_once
from django_outbox.context import HandlingContext, context
from django_outbox.event_types import event_type
from django_outbox.messages import HeaderValue
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet
from django_outbox.producer import Event
from django_outbox.publishers.base import Outcome, Publisher, Receipt
from django_outbox.publishers.registry import publisher_for
from tests.testapp.models import Invoice


def the_producer(invoice: Invoice) -> None:
    assert_type(enqueue("invoice.issued", {"id": 1}), OutboxMessage)
    assert_type(enqueue("invoice.issued", [1, 2], aggregate=invoice, sequence=3), OutboxMessage)
    assert_type(enqueue("invoice.issued", None, aggregate=("invoice", "1")), OutboxMessage)
    assert_type(enqueue("invoice.issued", {}, delay=timedelta(hours=1)), OutboxMessage)
    ignored = enqueue("invoice.issued", {}, message_id=UUID(int=1), on_conflict="ignore")
    assert_type(ignored, OutboxMessage | None)
    assert_type(enqueue_many([Event("invoice.issued", {})]), list[OutboxMessage])
    enqueue("invoice.issued")  # type: ignore[call-overload]
    enqueue("invoice.issued", {}, headers={"a": b"bytes"})  # type: ignore[dict-item]
    enqueue("invoice.issued", {}, on_conflict="overwrite")  # type: ignore[call-overload]


def the_rows() -> None:
    assert_type(OutboxMessage.objects.due(), OutboxMessageQuerySet)
    assert_type(OutboxMessage.objects.pending().dead(), OutboxMessageQuerySet)


@consumer("invoice.issued", name="typed")
def handle(message: Message) -> None:
    assert_type(message.id, UUID)
    assert_type(message.sequence, int | None)
    value: HeaderValue = message.headers["traceparent"]
    assert value


def the_decorated_handler_keeps_its_type(message: Message) -> None:
    handle(message)
    handle("no message")  # type: ignore[arg-type]


def the_inbox(message: Message) -> None:
    assert_type(process_once("typed", message), Processed)
    assert_type(process_once("typed", message, lambda received: received.payload), Processed)


def the_context() -> None:
    assert_type(current_context(), HandlingContext)
    with context(correlation_id="c") as entered:
        assert_type(entered.correlation_id, str)


def the_settings() -> None:
    settings = outbox_settings()
    assert_type(settings, OutboxSettings)
    assert_type(settings.lease, timedelta)
    settings.lease = timedelta(0)  # type: ignore[misc]


def a_publisher(messages: Sequence[Message]) -> None:
    publisher = publisher_for("default")
    assert_type(publisher, Publisher)
    assert_type(publisher.publish(messages), list[Receipt])
    Receipt(messages[0].id, "confirmed")  # type: ignore[arg-type]
    assert_type(Receipt(messages[0].id, Outcome.CONFIRMED).outcome, Outcome)


@event_type("invoice.issued", version=2)
class InvoiceIssued:
    schema = {"type": "object"}


def an_event_type_stays_the_class_it_was() -> None:
    assert_type(InvoiceIssued(), InvoiceIssued)
