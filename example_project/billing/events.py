"""What billing tells the world, and what each payload must look like."""

from __future__ import annotations

from typing import Any

from django_outbox.event_types import event_type

MONEY: dict[str, Any] = {"type": "string", "pattern": r"^-?[0-9]+\.[0-9]{2}$"}
CURRENCY: dict[str, Any] = {"type": "string", "pattern": "^[A-Z]{3}$"}


@event_type(
    "invoice.issued",
    aggregate_id="/invoice_id",
    index_by="/customer/tax_id",
    index_normalisers=["digits"],
)
class InvoiceIssued:
    """An invoice has got its number and is on its way to the customer."""

    schema = {
        "type": "object",
        "properties": {
            "invoice_id": {"type": "integer"},
            "number": {"type": "string"},
            "issued_on": {"type": "string", "format": "date"},
            "total": MONEY,
            "currency": CURRENCY,
            "customer": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "name": {"type": "string", "x-gdpr-sensitive": True},
                    "tax_id": {"type": ["string", "null"], "x-gdpr-sensitive": True},
                },
                "required": ["id", "name", "tax_id"],
                "additionalProperties": False,
            },
        },
        "required": ["invoice_id", "number", "issued_on", "total", "currency", "customer"],
        "additionalProperties": False,
    }


@event_type("invoice.paid", aggregate_id="/invoice_id")
class InvoicePaid:
    """The customer has paid the invoice in full."""

    schema = {
        "type": "object",
        "properties": {
            "invoice_id": {"type": "integer"},
            "number": {"type": "string"},
            "total": MONEY,
            "currency": CURRENCY,
        },
        "required": ["invoice_id", "number", "total", "currency"],
        "additionalProperties": False,
    }
