"""What the ledger promises: each event is booked once, and the books balance."""

from __future__ import annotations

from decimal import Decimal

from django.db.models import Sum
from django.test import TestCase

from django_outbox.consumers import Processed, process_once
from django_outbox.testing import OutboxTestMixin
from example_project.billing.models import Customer
from example_project.billing.services import draw_up_invoice, issue_invoice, record_payment
from example_project.ledger.models import Entry


def balance(account: str) -> Decimal:
    entries = Entry.objects.filter(account=account)
    total: Decimal = entries.aggregate(total=Sum("amount", default=Decimal(0)))["total"]
    return total


class LedgerTests(OutboxTestMixin, TestCase):
    def setUp(self) -> None:
        super().setUp()
        customer = Customer.objects.create(name="Ada Example", email="ada@example.com")
        self.invoice = draw_up_invoice(customer, [("Consulting", 1, Decimal("120.00"))])
        issue_invoice(self.invoice.pk)

    def test_an_issued_invoice_is_owed(self) -> None:
        self.outbox.drain()
        self.assertEqual(balance("receivable"), Decimal(120))
        self.assertEqual(balance("revenue"), Decimal(-120))

    def test_a_paid_invoice_is_owed_no_more(self) -> None:
        record_payment(self.invoice.pk)
        self.outbox.drain()
        self.assertEqual(balance("receivable"), Decimal(0))
        self.assertEqual(balance("bank"), Decimal(120))

    def test_a_message_that_comes_twice_is_booked_once(self) -> None:
        [message] = self.outbox.drain()
        self.assertIs(process_once("ledger.invoices", message), Processed.DUPLICATE)
        self.assertEqual(Entry.objects.count(), 2)
