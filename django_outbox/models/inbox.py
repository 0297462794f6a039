"""The inbox: what each consumer has processed, and how far each aggregate has come."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class ProcessedMessage(models.Model):
    """One message that one consumer has processed, written in the transaction of the effect."""

    id = models.BigAutoField(primary_key=True)
    consumer = models.CharField(_("consumer"), max_length=100)
    message_id = models.UUIDField(_("message id"))
    topic = models.CharField(_("topic"), max_length=255, blank=True, db_default="")
    aggregate_type = models.CharField(
        _("aggregate type"), max_length=100, blank=True, db_default=""
    )
    aggregate_id = models.CharField(_("aggregate id"), max_length=255, blank=True, db_default="")
    sequence = models.BigIntegerField(_("sequence"), null=True, blank=True)
    processed_at = models.DateTimeField(_("processed at"), db_default=Now(), db_index=True)

    class Meta:
        verbose_name = _("processed message")
        verbose_name_plural = _("processed messages")
        constraints = [
            models.UniqueConstraint(
                name="django_outbox_processed_once", fields=["consumer", "message_id"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.consumer} {self.message_id}"


class AggregateCursor(models.Model):
    """The highest sequence of an aggregate that a consumer has applied. Survives pruning."""

    id = models.BigAutoField(primary_key=True)
    consumer = models.CharField(_("consumer"), max_length=100)
    aggregate_type = models.CharField(_("aggregate type"), max_length=100)
    aggregate_id = models.CharField(_("aggregate id"), max_length=255)
    sequence = models.BigIntegerField(_("sequence"))

    class Meta:
        verbose_name = _("aggregate cursor")
        verbose_name_plural = _("aggregate cursors")
        constraints = [
            models.UniqueConstraint(
                name="django_outbox_cursor", fields=["consumer", "aggregate_type", "aggregate_id"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.consumer} {self.aggregate_type} {self.sequence}"
