"""What the ledger does about billing's events: it books them, each one once."""

from __future__ import annotations

from decimal import Decimal

from django_outbox import Message
from django_outbox.consumers import consumer
from example_project.ledger.models import Entry

Account = Entry.Account


@consumer("invoice.issued", name="ledger.invoices")
def book_invoice(message: Message) -> None:
    """The customer owes us the total, and we have earned it."""
    book(message, debit=Account.RECEIVABLE, credit=Account.REVENUE)


@consumer("invoice.paid", name="ledger.payments")
def book_payment(message: Message) -> None:
    """The total is on our bank account, and nobody owes it any more."""
    book(message, debit=Account.BANK, credit=Account.RECEIVABLE)


def book(message: Message, *, debit: Account, credit: Account) -> None:
    """Both sides of a booking. The inbox's transaction is open, so both or neither are written."""
    total = Decimal(message.payload["total"])
    # Sealed in the table and in the queue, open here; sealed again in the ledger's own column.
    customer = message.payload.get("customer", {}).get("name", "")
    Entry.objects.bulk_create(
        Entry(
            account=account,
            reference=message.payload["number"],
            amount=amount,
            currency=message.payload["currency"],
            customer=customer,
        )
        for account, amount in ((debit, total), (credit, -total))
    )
