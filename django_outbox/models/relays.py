"""RelayProcess: which relays are at work, as each of them says every few seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from django_outbox.databases.clock import DatabaseNow

#: A relay that has said nothing for so long is taken to be gone: six times the interval.
SILENCE = timedelta(seconds=60)
#: For so long one that is gone is remembered.
REMEMBERED = timedelta(days=1)
_ALIVE = models.Q(stopped_at=None, seen_at__gt=DatabaseNow() - SILENCE)


class RelayProcessQuerySet(models.QuerySet["RelayProcess"]):
    """Relays by what they are now, by the database's clock."""

    def alive(self) -> RelayProcessQuerySet:
        """Heard of within the last minute, and not stopped."""
        return self.filter(_ALIVE)

    def with_is_alive(self) -> models.QuerySet[Any]:
        """Each with ``is_alive``."""
        return self.annotate(
            is_alive=models.Case(
                models.When(_ALIVE, then=True), default=False, output_field=models.BooleanField()
            )
        )

    def forgotten(self) -> RelayProcessQuerySet:
        """Not heard of for a day: pruning deletes them."""
        return self.filter(seen_at__lt=DatabaseNow() - REMEMBERED)


class RelayProcess(models.Model):
    """One process that publishes. Its sums count from ``started_at``."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=100, unique=True)
    started_at = models.DateTimeField(_("started at"), db_default=DatabaseNow())
    seen_at = models.DateTimeField(_("seen at"), db_default=DatabaseNow())
    stopped_at = models.DateTimeField(_("stopped at"), null=True, blank=True)
    version = models.CharField(_("version"), max_length=32, blank=True, db_default="")
    topics = models.TextField(_("topics"), blank=True, default="", db_default="")
    published = models.BigIntegerField(_("published"), default=0, db_default=0)
    failed = models.BigIntegerField(_("failed attempts"), default=0, db_default=0)
    dead = models.BigIntegerField(_("dead"), default=0, db_default=0)
    lost = models.BigIntegerField(_("leases lost"), default=0, db_default=0)
    breakers = models.JSONField(
        _("open breakers"), default=dict, db_default={}, blank=True, encoder=DjangoJSONEncoder
    )

    objects = RelayProcessQuerySet.as_manager()

    class Meta:
        verbose_name = _("relay")
        verbose_name_plural = _("relays")

    def __str__(self) -> str:
        return self.name
