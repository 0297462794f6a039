"""Where the mode "seen" remembers what was handled: the inbox table or Django's cache.

Written after the handler has returned. A crash in between means that the handler runs again, and
two deliveries at the same moment may both run: right for handlers whose effect is idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from django.core.cache import BaseCache, caches
from django.db import transaction

from django_outbox.conf import outbox_settings
from django_outbox.databases import database_for
from django_outbox.models import ProcessedMessage


class Record(Protocol):
    """Remembers which consumer has handled which message."""

    def holds(self, consumer: str, message_id: UUID) -> bool:
        """Whether the consumer is known to have handled the message."""
        ...

    def add(self, consumer: str, row: Mapping[str, object]) -> None:
        """Remember the message of this inbox row. A second time changes nothing."""
        ...


def record_for(alias: str) -> Record:
    """The record that ``OUTBOX["CONSUMERS"]["SEEN_IN"]`` names."""
    settings = outbox_settings()
    if settings.consumers.seen_in == "cache":
        return CacheRecord(caches[settings.consumers.cache], settings.retention.processed)
    return TableRecord(alias)


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The inbox table: survives restarts, shared by every worker, pruned with the rest."""

    alias: str

    def holds(self, consumer: str, message_id: UUID) -> bool:
        rows = ProcessedMessage.objects.using(self.alias)
        return rows.filter(consumer=consumer, message_id=message_id).exists()

    def add(self, consumer: str, row: Mapping[str, object]) -> None:
        with transaction.atomic(using=self.alias):
            database_for(self.alias).insert_new(consumer, (row,))


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """Django's cache: no write to the database, and forgotten whenever the cache forgets."""

    cache: BaseCache
    keep: timedelta | None

    def holds(self, consumer: str, message_id: UUID) -> bool:
        return self.cache.get(self._key(consumer, message_id)) is not None

    def add(self, consumer: str, row: Mapping[str, object]) -> None:
        timeout = self.keep.total_seconds() if self.keep else None
        self.cache.set(self._key(consumer, row["message_id"]), 1, timeout)

    @staticmethod
    def _key(consumer: str, message_id: object) -> str:
        # Names may hold what memcached refuses in a key; their hash does not.
        return f"django_outbox:seen:{uuid5(NAMESPACE_URL, consumer).hex}:{message_id}"
