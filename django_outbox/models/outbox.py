"""OutboxMessage: the event as a row, written in the business transaction."""

from __future__ import annotations

from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_outbox.databases.clock import DatabaseNow
from django_outbox.databases.columns import ExactCharField
from django_outbox.databases.held_back import HeldBack
from django_outbox.databases.indexes import VendorIndex

NIL_UUID = UUID(int=0)


class Status(models.TextChoices):
    """Where a message stands. "In flight" is no status: it follows from the lease."""

    PENDING = "pending", _("pending")
    PUBLISHED = "published", _("published")
    DEAD = "dead", _("dead")
    DISCARDED = "discarded", _("discarded")


class OutboxMessageQuerySet(models.QuerySet["OutboxMessage"]):
    """Rows by what they are now, by the database's clock."""

    def pending(self) -> OutboxMessageQuerySet:
        """Not yet settled: due, scheduled, backing off or in flight."""
        return self.filter(status=Status.PENDING)

    def due(self) -> OutboxMessageQuerySet:
        """Pending, its time come, and under no live lease."""
        return self.pending().not_leased().filter(available_at__lte=DatabaseNow())

    def ready(self) -> OutboxMessageQuerySet:
        """Due, and never tried."""
        return self.due().filter(attempts=0)

    def scheduled(self) -> OutboxMessageQuerySet:
        """Pending and never tried, its time still to come."""
        return self.pending().filter(attempts=0, available_at__gt=DatabaseNow())

    def retrying(self) -> OutboxMessageQuerySet:
        """Pending and tried before, under no live lease: backing off, or due again."""
        return self.pending().not_leased().filter(attempts__gt=0)

    def in_flight(self) -> OutboxMessageQuerySet:
        """Under a live lease: some relay is publishing it."""
        # A claim counts its attempt: said once more, it leads to the index of the few busy rows.
        return self.pending().filter(attempts__gt=0, lease_expires_at__gt=DatabaseNow())

    def blocked(self) -> OutboxMessageQuerySet:
        """Pending, due or not, and held back by another message of its aggregate.

        The claim's own rule: one that was never tried waits while any of its aggregate has been; one
        that was, while an earlier one has been; and both while a dead one blocks, where the route
        says ``on_dead="block"``. These are among the ready, scheduled or retrying ones.
        """
        return self.pending().filter(HeldBack())

    def not_leased(self) -> OutboxMessageQuerySet:
        """Under no live lease: no relay has it in hand."""
        return self.filter(Q(lease_expires_at=None) | Q(lease_expires_at__lte=DatabaseNow()))

    def published(self) -> OutboxMessageQuerySet:
        """Taken over by the broker."""
        return self.filter(status=Status.PUBLISHED)

    def dead(self) -> OutboxMessageQuerySet:
        """Given up: attempts exhausted or never publishable."""
        return self.filter(status=Status.DEAD)

    def discarded(self) -> OutboxMessageQuerySet:
        """Set aside by a person."""
        return self.filter(status=Status.DISCARDED)


class OutboxMessage(models.Model):
    """One event, kept until a broker has confirmed it."""

    id = models.BigAutoField(primary_key=True)
    message_id = models.UUIDField(_("message id"), unique=True)
    topic = models.CharField(_("topic"), max_length=255)
    schema_version = models.PositiveSmallIntegerField(_("schema version"), default=1, db_default=1)
    aggregate_type = ExactCharField(_("aggregate type"), max_length=100, blank=True, db_default="")
    aggregate_id = ExactCharField(_("aggregate id"), max_length=255, blank=True, db_default="")
    sequence = models.BigIntegerField(_("sequence"), null=True, blank=True)
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder)
    headers = models.JSONField(
        _("headers"), default=dict, db_default={}, blank=True, encoder=DjangoJSONEncoder
    )
    correlation_id = models.CharField(
        _("correlation id"), max_length=255, blank=True, db_default=""
    )
    causation_id = models.CharField(_("causation id"), max_length=255, blank=True, db_default="")
    size = models.PositiveIntegerField(_("size in bytes"), default=0, db_default=0)
    status = models.CharField(
        _("status"),
        max_length=10,
        choices=Status,
        default=Status.PENDING,
        db_default=Status.PENDING,
    )
    available_at = models.DateTimeField(_("due at"), db_default=DatabaseNow())
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0, db_default=0)
    lease_token = models.UUIDField(_("lease token"), null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(
        _("lease ends at"), null=True, blank=True, editable=False
    )
    leased_by = models.CharField(_("leased by"), max_length=100, blank=True, db_default="")
    published_at = models.DateTimeField(_("published at"), null=True, blank=True)
    last_error = models.TextField(_("last error"), blank=True, default="", db_default="")
    index_tag = models.CharField(
        _("index tag"), max_length=100, blank=True, db_default="", editable=False
    )
    created_at = models.DateTimeField(_("created at"), db_default=DatabaseNow())

    objects = OutboxMessageQuerySet.as_manager()

    class Meta:
        verbose_name = _("outbox message")
        verbose_name_plural = _("outbox messages")
        # Beside Django's own "view"; nobody is ever asked for "add", "change" or "delete".
        permissions = [
            ("requeue_outboxmessage", "Can requeue dead messages"),
            ("discard_outboxmessage", "Can discard messages"),
            ("replay_outboxmessage", "Can replay published messages"),
            ("reveal_outboxmessage", "Can reveal personal data in messages"),
        ]
        indexes = [
            # What a claim walks along, in its ORDER BY.
            VendorIndex(
                name="django_outbox_due",
                fields=["available_at", "id"],
                where=Q(status="pending"),
                mysql_fields=["status", "available_at", "id"],
            ),
            # The busy set: in flight, backing off, or left behind by a crashed relay.
            VendorIndex(
                name="django_outbox_busy",
                fields=["aggregate_type", "aggregate_id", "id"],
                where=Q(status="pending", attempts__gt=0),
                mysql_fields=["status", "attempts"],
            ),
            # Support looks for one person's messages, by the keyed tag of one member.
            VendorIndex(
                name="django_outbox_tag",
                fields=["index_tag", "id"],
                where=~Q(index_tag=""),
                mysql_fields=["index_tag", "id"],
            ),
            # Pruning, and the admin's lists of what is settled.
            VendorIndex(
                name="django_outbox_settled",
                fields=["status", "published_at"],
                where=~Q(status="pending"),
                mysql_fields=["status", "published_at"],
            ),
            # What was set aside, the newest first: it has no time, so the id orders it. Published rows
            # are not in it; MySQL and MariaDB have the id in the index above anyway.
            VendorIndex(
                name="django_outbox_set_aside",
                fields=["status", "published_at", "id"],
                where=Q(status__in=["dead", "discarded"]),
                mysql_fields=[],
            ),
            # Support looks for what became of one thing, or of one request. Only settled rows are in
            # them, so that neither an enqueue nor a claim writes to them (decision 0016).
            VendorIndex(
                name="django_outbox_aggregate",
                fields=["aggregate_id", "id"],
                where=~Q(status="pending") & ~Q(aggregate_id=""),
                mysql_fields=["aggregate_id", "id"],
            ),
            VendorIndex(
                name="django_outbox_correlation",
                fields=["correlation_id", "id"],
                where=~Q(status="pending") & ~Q(correlation_id=""),
                mysql_fields=["correlation_id", "id"],
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="django_outbox_status", condition=Q(status__in=[s.value for s in Status])
            ),
            models.CheckConstraint(
                name="django_outbox_lease_pair",
                condition=Q(lease_token=None, lease_expires_at=None)
                | Q(lease_token__isnull=False, lease_expires_at__isnull=False, status="pending"),
            ),
            models.CheckConstraint(
                name="django_outbox_message_id", condition=~Q(message_id=NIL_UUID)
            ),
            models.CheckConstraint(
                name="django_outbox_published_at",
                condition=Q(status="published", published_at__isnull=False)
                | (~Q(status="published") & Q(published_at=None)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.message_id}"
