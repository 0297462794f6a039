"""What one claim may take: the settings, the relay's own topics, and which brokers answer."""

from __future__ import annotations

import os
import socket

from django_outbox.batches import Limits
from django_outbox.conf import OutboxSettings
from django_outbox.routing import Ordering
from django_outbox.topics import TopicSelection


def limits_of(settings: OutboxSettings, topics: TopicSelection) -> Limits:
    """The limits of this relay while every broker answers."""
    return Limits(
        rows=settings.batch_size,
        bytes=settings.batch_bytes,
        lease=settings.lease,
        topics=topics,
        unordered=settings.routes.topics_by_ordering(Ordering.NONE),
        blocking=settings.routes.topics_blocked_by_dead(),
    )


def leased_by() -> str:
    """Who claims, for people: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
