"""The consumers of the worker processes."""

from __future__ import annotations

from django_outbox.consumers import consumer
from django_outbox.messages import Message
from tests.testapp.models import LedgerEntry
from tests.transports.behaviour import act, note


@consumer("invoice.*", name="ledger", max_attempts=3)
def book_invoice(message: Message) -> None:
    act(message)


@consumer("bulk.*", name="bulk", batch=100, max_attempts=3)
def book_in_bulk(messages: list[Message]) -> None:
    for message in messages:
        note("handling", message)
        if message.payload.get("do") == "raise":
            raise ValueError("secret of the payload")
    LedgerEntry.objects.bulk_create(
        LedgerEntry(account="bulk", reference=str(each.id), amount=1) for each in messages
    )
