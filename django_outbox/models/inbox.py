"""The inbox: what each consumer has processed, how far each aggregate has come, and what other
systems and clients were answered."""

from __future__ import annotations

from datetime import timedelta

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_outbox.databases.clock import DatabaseNow
from django_outbox.databases.columns import ExactCharField


class ProcessedMessageQuerySet(models.QuerySet["ProcessedMessage"]):
    """Inbox rows by their age, by the database's clock."""

    def older_than(self, age: timedelta) -> ProcessedMessageQuerySet:
        """What may be pruned after a retention of that length."""
        return self.filter(processed_at__lt=DatabaseNow() - age)


class ProcessedMessage(models.Model):
    """One message that one consumer has processed, written in the transaction of the effect."""

    id = models.BigAutoField(primary_key=True)
    consumer = ExactCharField(_("consumer"), max_length=100)
    message_id = models.UUIDField(_("message id"))
    topic = models.CharField(_("topic"), max_length=255, blank=True, db_default="")
    aggregate_type = ExactCharField(_("aggregate type"), max_length=100, blank=True, db_default="")
    aggregate_id = ExactCharField(_("aggregate id"), max_length=255, blank=True, db_default="")
    sequence = models.BigIntegerField(_("sequence"), null=True, blank=True)
    processed_at = models.DateTimeField(_("processed at"), db_default=DatabaseNow(), db_index=True)

    objects = ProcessedMessageQuerySet.as_manager()

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
    consumer = ExactCharField(_("consumer"), max_length=100)
    aggregate_type = ExactCharField(_("aggregate type"), max_length=100)
    aggregate_id = ExactCharField(_("aggregate id"), max_length=255)
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


class CallState(models.TextChoices):
    """How far a call to another system has come."""

    RESERVED = "reserved", _("reserved")
    """The key is taken and the call may be under way; after its lease: outcome unknown."""
    SUCCEEDED = "succeeded", _("succeeded")
    """The call took effect and its outcome is stored."""
    FAILED = "failed", _("failed")
    """The call is known to have had no effect; the next delivery makes it again."""
    UNKNOWN = "unknown", _("unknown")
    """Nobody knows whether it took effect: the handler's look_up has to find out."""


class ExternalCallQuerySet(models.QuerySet["ExternalCall"]):
    """Calls by what is known of them, by the database's clock."""

    def unresolved(self) -> ExternalCallQuerySet:
        """Started, and nobody is at work on them any more: their outcome is unknown."""
        abandoned = Q(state=CallState.RESERVED, lease_expires_at__lte=DatabaseNow())
        return self.filter(abandoned | Q(state=CallState.UNKNOWN))

    def older_than(self, age: timedelta) -> ExternalCallQuerySet:
        """What may be pruned after a retention of that length: never one that is unresolved."""
        settled = [CallState.SUCCEEDED, CallState.FAILED]
        return self.filter(state__in=settled, updated_at__lt=DatabaseNow() - age)


class ExternalCall(models.Model):
    """One call to another system because of one message, reserved before it is made."""

    id = models.BigAutoField(primary_key=True)
    consumer = ExactCharField(_("consumer"), max_length=100)
    message_id = models.UUIDField(_("message id"))
    name = ExactCharField(_("call"), max_length=100, blank=True, db_default="")
    state = models.CharField(_("state"), max_length=10, choices=CallState)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0, db_default=0)
    lease_token = models.UUIDField(_("lease token"), null=True, editable=False)
    lease_expires_at = models.DateTimeField(_("lease ends at"), null=True, editable=False)
    outcome = models.JSONField(_("outcome"), null=True, encoder=DjangoJSONEncoder)
    last_error = models.CharField(_("last error"), max_length=255, blank=True, db_default="")
    created_at = models.DateTimeField(_("created at"), db_default=DatabaseNow())
    updated_at = models.DateTimeField(_("updated at"), db_default=DatabaseNow())

    objects = ExternalCallQuerySet.as_manager()

    class Meta:
        verbose_name = _("external call")
        verbose_name_plural = _("external calls")
        constraints = [
            models.UniqueConstraint(
                name="django_outbox_call_once", fields=["consumer", "message_id", "name"]
            ),
            models.CheckConstraint(
                name="django_outbox_call_state",
                condition=Q(state__in=[state.value for state in CallState]),
            ),
        ]
        indexes = [models.Index(name="django_outbox_call_age", fields=["state", "updated_at"])]

    def __str__(self) -> str:
        return f"{self.consumer} {self.message_id} {self.name}".rstrip()


class StoredResponseQuerySet(models.QuerySet["StoredResponse"]):
    """Stored responses by the database's clock."""

    def expired(self) -> StoredResponseQuerySet:
        """What may be pruned: past its time, and not being made just now."""
        free = Q(lease_expires_at=None) | Q(lease_expires_at__lte=DatabaseNow())
        return self.filter(free, expires_at__lte=DatabaseNow())


class StoredResponse(models.Model):
    """The answer to one idempotent HTTP request. Holds a digest of its key, never the key.

    Without a status it is a reservation: the request is being handled until the lease ends. Body and
    headers are kept as they were sent and may hold personal data; they go when the row expires.
    """

    id = models.BigAutoField(primary_key=True)
    key_digest = models.CharField(_("digest of the key"), max_length=64, unique=True)
    fingerprint = models.CharField(_("digest of the request"), max_length=64)
    method = models.CharField(_("method"), max_length=10)
    lease_token = models.UUIDField(_("lease token"), null=True, editable=False)
    lease_expires_at = models.DateTimeField(_("lease ends at"), null=True, editable=False)
    status_code = models.PositiveSmallIntegerField(_("status"), null=True)
    headers = models.JSONField(_("headers"), default=dict)
    body = models.BinaryField(_("body"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=DatabaseNow())
    expires_at = models.DateTimeField(_("expires at"), db_index=True)

    objects = StoredResponseQuerySet.as_manager()

    class Meta:
        verbose_name = _("stored response")
        verbose_name_plural = _("stored responses")

    def __str__(self) -> str:
        return f"{self.method} {self.status_code or '…'}"
