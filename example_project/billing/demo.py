"""The life of a message, step by step, as the tables tell it.

Nothing printed here is made up: every line is read from the database after the fact, or is what the
library returned. It can be run as often as you like; each run adds one invoice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model

from django_outbox import Message
from django_outbox.consumers import Processed, process_once
from django_outbox.consumers.registry import consumers_for
from django_outbox.models import OutboxMessage, ProcessedMessage
from django_outbox.publishers.base import Receipt
from django_outbox.publishers.local import LocalPublisher
from django_outbox.relay.loop import Relay
from example_project.billing.models import Customer, Invoice
from example_project.billing.services import draw_up_invoice, issue_invoice
from example_project.ledger.models import Entry

Say = Callable[[str, str], object]
TAX_ID = "DE 123 456 789"


class ChangedOurMind(Exception):
    """Raised by the demo to roll a transaction back."""


class WatchedPublisher(LocalPublisher):
    """The local publisher, telling what the tables say before and after it hands a message over."""

    def __init__(self, alias: str, options: Mapping[str, Any], say: Say) -> None:
        super().__init__(alias, options)
        self.say = say
        self.sent: list[Message] = []

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        for message in messages:
            row = OutboxMessage.objects.get(message_id=message.id)
            lease = f"leased by {row.leased_by} until {row.lease_expires_at:%H:%M:%S} UTC"
            self.say("claimed", f"{_short(row)}: {row.status}, attempts {row.attempts}, {lease}")
        receipts = super().publish(messages)
        for receipt in receipts:
            for done in ProcessedMessage.objects.filter(message_id=receipt.message_id):
                at = f"{done.processed_at:%H:%M:%S} UTC"
                self.say("handled", f"{_short(done)}: by {done.consumer} at {at}")
            told = f"{receipt.outcome.name.lower()} {receipt.reason}".rstrip()
            self.say("receipt", f"{_short(receipt)}: {told}")
        self.sent += messages
        return receipts


def migrate(say: Say) -> None:
    """Bring the database up to date."""
    recorder = MigrationRecorder(connection)
    before = len(recorder.applied_migrations())
    call_command("migrate", verbosity=0)
    now = len(recorder.applied_migrations())
    say("database", f"{settings.DATABASES['default']['NAME']} ({connection.display_name})")
    say("migrated", f"{now - before} migrations applied, {now} in all")


def draft() -> Invoice:
    """A new draft, of a customer who is made at the first run."""
    customer, _ = Customer.objects.get_or_create(
        tax_id=TAX_ID, defaults={"name": "Ada Example", "email": "ada@example.com"}
    )
    lines = [("Consulting, hours", 8, Decimal("95.00")), ("Travel", 1, Decimal("42.50"))]
    return draw_up_invoice(customer, lines)


def commit(say: Say) -> OutboxMessage:
    """Issue an invoice: the change and the event about it in one transaction."""
    invoice = issue_invoice(draft().pk)
    invoice.refresh_from_db()
    message = OutboxMessage.objects.get(
        aggregate_type=invoice._meta.label_lower,
        aggregate_id=str(invoice.pk),
        sequence=invoice.version,
    )
    say("committed", f"invoice {invoice}: {invoice.state}, {invoice.total} {invoice.currency}")
    whose = f"{message.aggregate_type} {message.aggregate_id}, sequence {message.sequence}"
    say("enqueued", f"{message.message_id}: {message.topic} of {whose}")
    say("", f"{_short(message)}: {message.status}, attempts {message.attempts}")
    return message


def roll_back(say: Say) -> None:
    """Issue another one, and change our mind before the transaction ends."""
    other = draft()
    say("before", _counts())
    try:
        with transaction.atomic():
            issue_invoice(other.pk)
            say("inside", _counts())
            raise ChangedOurMind
    except ChangedOurMind:
        say("rolled back", _counts())


def relay(say: Say) -> list[Message]:
    """Run the relay until nothing is due; returns what it sent."""
    publisher = WatchedPublisher("default", {}, say)
    Relay(publisher_for=lambda alias: publisher).drain()
    for message in publisher.sent:
        row = OutboxMessage.objects.get(message_id=message.id)
        at = f" at {row.published_at:%H:%M:%S} UTC" if row.published_at else ""
        say(row.status, f"{_short(row)}: {row.status}{at}, attempts {row.attempts}")
    return publisher.sent


def sealed(say: Say, message: OutboxMessage) -> None:
    """What somebody reads who has stolen the database, and what the owner of the keys reads."""
    customer = Customer.objects.get(tax_id=TAX_ID)
    say("customer's row", _shortened(_raw("name", Customer, customer.pk)))
    payload = json.dumps(message.payload["customer"]["name"])
    say("message's row", f"…{str(message.message_id)[-8:]}: customer name {_shortened(payload)}")
    entry = Entry.objects.filter(reference=message.payload["number"]).latest("pk")
    say("ledger's row", _shortened(_raw("customer", Entry, entry.pk)))
    say("in the ledger", f"the consumer has read the name: {entry.customer}")
    say("by tax number", f"123456789 finds {Customer.objects.get(tax_id='123456789').name}")


def _raw(column: str, model: type[Model], pk: int) -> str:
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(model._meta.db_table)
        cursor.execute(f"SELECT {column} FROM {table} WHERE id = %s", [pk])
        return str(cursor.fetchone()[0])


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def duplicate(say: Say, message: Message) -> None:
    """Let the message arrive once more, as after a crash between publishing and settling."""
    say("before", _booked(message))
    for consumer in consumers_for(message.topic):
        answer = process_once(consumer, message)
        what = "duplicate dropped" if answer is Processed.DUPLICATE else answer.name.lower()
        say(what, f"…{str(message.id)[-8:]}: {consumer.name} answered {answer.name}")
    say("after", _booked(message))


def _short(of: OutboxMessage | ProcessedMessage | Receipt) -> str:
    """The end of the message id: its beginning is the time, the same for all of a moment."""
    return f"…{str(of.message_id)[-8:]}"


def _counts() -> str:
    issued = Invoice.objects.exclude(state=Invoice.State.DRAFT).count()
    return f"invoices issued: {issued}, messages in the outbox: {OutboxMessage.objects.count()}"


def _booked(message: Message) -> str:
    entries = Entry.objects.filter(reference=message.payload["number"])
    noted = ProcessedMessage.objects.filter(message_id=message.id).count()
    return f"entries in the ledger: {entries.count()}, lines in the inbox: {noted}"
