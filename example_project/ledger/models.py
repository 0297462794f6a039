"""Double-entry bookkeeping, as small as it gets."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.encryption import EncryptedCharField


class Entry(models.Model):
    """One side of a booking: positive amounts are debits, negative ones credits."""

    class Account(models.TextChoices):
        RECEIVABLE = "receivable", _("receivable")
        REVENUE = "revenue", _("revenue")
        BANK = "bank", _("bank")

    account = models.CharField(_("account"), max_length=20, choices=Account)
    reference = models.CharField(_("reference"), max_length=20)
    amount = models.DecimalField(_("amount"), max_digits=12, decimal_places=2)
    currency = models.CharField(_("currency"), max_length=3)
    customer = EncryptedCharField(_("customer"), max_length=200, blank=True)
    booked_at = models.DateTimeField(_("booked at"), auto_now_add=True)

    class Meta:
        verbose_name_plural = _("entries")

    def __str__(self) -> str:
        return f"{self.account} {self.amount} {self.currency} ({self.reference})"
