"""What billing does. Each change of state and the event about it commit together, or neither does."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from django_outbox import enqueue
from example_project.billing.models import Customer, Invoice, InvoiceLine


class WrongState(Exception):
    """The invoice is not in the state that this step starts from. Nothing was changed."""

    def __init__(self, invoice: Invoice, expected: str) -> None:
        super().__init__(f"Invoice {invoice} is {invoice.state}, not {expected}.")


@transaction.atomic
def draw_up_invoice(customer: Customer, lines: list[tuple[str, int, Decimal]]) -> Invoice:
    """Write a draft: nobody else hears of it, so there is no event."""
    invoice = Invoice.objects.create(customer=customer)
    InvoiceLine.objects.bulk_create(
        InvoiceLine(invoice=invoice, description=text, quantity=quantity, unit_price=price)
        for text, quantity, price in lines
    )
    return invoice


@transaction.atomic
def issue_invoice(invoice_id: int) -> Invoice:
    """Give a draft its number and tell the world. Raises ``WrongState`` for anything but a draft."""
    invoice = _locked(invoice_id, Invoice.State.DRAFT)
    invoice.state = Invoice.State.ISSUED
    invoice.issued_on = timezone.localdate()
    invoice.number = f"{invoice.issued_on.year}-{invoice.pk:06d}"
    invoice.total = invoice.sum_of_lines()
    _save(invoice)
    enqueue(
        "invoice.issued",
        {
            "invoice_id": invoice.pk,
            "number": invoice.number,
            "issued_on": invoice.issued_on,
            "total": invoice.total,
            "currency": invoice.currency,
            "customer": {
                "id": invoice.customer_id,
                "name": invoice.customer.name,
                "tax_id": invoice.customer.tax_id,
            },
        },
        aggregate=invoice,
        sequence=invoice.version,
    )
    return invoice


@transaction.atomic
def record_payment(invoice_id: int) -> Invoice:
    """An issued invoice was paid in full. Raises ``WrongState`` for anything but an issued one."""
    invoice = _locked(invoice_id, Invoice.State.ISSUED)
    invoice.state = Invoice.State.PAID
    _save(invoice)
    enqueue(
        "invoice.paid",
        {
            "invoice_id": invoice.pk,
            "number": invoice.number,
            "total": invoice.total,
            "currency": invoice.currency,
        },
        aggregate=invoice,
        sequence=invoice.version,
    )
    return invoice


def _locked(invoice_id: int, state: str) -> Invoice:
    # The lock keeps two people from issuing one draft twice; without it `version` could repeat.
    invoice = Invoice.objects.select_for_update().get(pk=invoice_id)
    if invoice.state != state:
        raise WrongState(invoice, state)
    return invoice


def _save(invoice: Invoice) -> None:
    invoice.version += 1
    invoice.save()
