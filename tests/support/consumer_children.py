"""What the killed processes of tests/faults/test_consumers_killed.py were doing."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_outbox.consumers import Consumer, process_once
from django_outbox.consumers.bulk import process_batch
from django_outbox.consumers.external import once_outside
from django_outbox.consumers.http import idempotent_request
from django_outbox.context import context
from django_outbox.messages import Message
from tests.support.children import Say, stand_still
from tests.support.messages import received
from tests.testapp.models import Balance, LedgerEntry


def book(message: Message) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id))


def add(message: Message) -> None:
    Balance.objects.filter(account="sales").update(amount=F("amount") + 1)


def handle_and_stand_still(say: Say, message_id: str) -> None:
    def handle(message: Message) -> None:
        book(message)
        say("handled")
        stand_still()

    process_once(Consumer(name="ledger", handler=handle), received(id=UUID(message_id)))


def process_and_stand_still(say: Say, message_id: str) -> None:
    process_once(Consumer(name="ledger", handler=book), received(id=UUID(message_id)))
    say("processed")
    stand_still()


def handle_a_batch_and_stand_still(say: Say, *message_ids: str) -> None:
    def handle(messages: list[Message]) -> None:
        for message in messages:
            book(message)
        say("handled")
        stand_still()

    messages = [received(id=UUID(each)) for each in message_ids]
    process_batch(Consumer(name="ledger", handler=handle, batch=100), messages, print)


def call_and_stand_still(say: Say, message_id: str, lease: str) -> None:
    def call(key: str) -> None:
        say(f"called with {key}")
        stand_still()

    with context(consumer="payments"):
        once_outside(received(id=UUID(message_id)), call, lease=timedelta(seconds=float(lease)))


def order(request: HttpRequest) -> HttpResponse:
    LedgerEntry.objects.create(account="orders")
    return HttpResponse("ordered", status=201)


def order_request() -> HttpRequest:
    return RequestFactory().post(
        "/order", b"1", content_type="text/plain", headers={"Idempotency-Key": "key-1"}
    )


def order_and_stand_still(say: Say, lease: str) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        order(request)
        say("ordered")
        stand_still()
        raise AssertionError

    idempotent_request(lease=timedelta(seconds=float(lease)))(view)(order_request())


def process_all(say: Say, *message_ids: str) -> None:
    consumer = Consumer(name="ledger", handler=add)
    say("started")
    for message_id in message_ids:
        process_once(consumer, received(id=UUID(message_id)))
