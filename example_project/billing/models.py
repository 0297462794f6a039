"""Customers, and the invoices that are drawn up, issued and paid."""

from __future__ import annotations

from decimal import Decimal

from django.db import models
from django.db.models import F, Sum
from django.utils.translation import gettext_lazy as _

from django_outbox.encryption import BlindIndexField, EncryptedCharField, EncryptedEmailField


class Customer(models.Model):
    """Whom we bill. Who that is stands nowhere in clear; the tax number can be searched for."""

    name = EncryptedCharField(_("name"), max_length=200)
    email = EncryptedEmailField(_("e-mail"))
    tax_id = EncryptedCharField(_("tax number"), max_length=30, null=True, blank=True)
    tax_id_index = BlindIndexField("tax_id", normalisers=["digits"], unique=True)

    def __str__(self) -> str:
        # Not the name: the admin's log keeps this text, and error pages show it.
        return f"customer {self.pk}"


class Invoice(models.Model):
    """What a customer owes. ``version`` counts its changes of state: the sequence of its events."""

    class State(models.TextChoices):
        DRAFT = "draft", _("draft")
        ISSUED = "issued", _("issued")
        PAID = "paid", _("paid")

    customer = models.ForeignKey(Customer, models.PROTECT, related_name="invoices")
    number = models.CharField(_("number"), max_length=20, unique=True, null=True, editable=False)  # noqa: DJ001 - NULL: no number yet, and unique all the same
    state = models.CharField(
        _("state"), max_length=10, choices=State, default=State.DRAFT, editable=False
    )
    currency = models.CharField(_("currency"), max_length=3, default="EUR")
    total = models.DecimalField(
        _("total"), max_digits=12, decimal_places=2, default=Decimal(0), editable=False
    )
    issued_on = models.DateField(_("issued on"), null=True, editable=False)
    version = models.PositiveIntegerField(default=0, editable=False)

    def __str__(self) -> str:
        return self.number or f"draft {self.pk}"

    def sum_of_lines(self) -> Decimal:
        """What the lines add up to."""
        amount = Sum(F("quantity") * F("unit_price"), default=Decimal(0))
        total: Decimal = self.lines.aggregate(total=amount)["total"]
        return total.quantize(Decimal("0.01"))


class InvoiceLine(models.Model):
    """One position of an invoice."""

    invoice = models.ForeignKey(Invoice, models.CASCADE, related_name="lines")
    description = models.CharField(_("description"), max_length=200)
    quantity = models.PositiveIntegerField(_("quantity"), default=1)
    unit_price = models.DecimalField(_("unit price"), max_digits=12, decimal_places=2)

    def __str__(self) -> str:
        return self.description
