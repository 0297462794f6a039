"""How fast messages go out, and how long they take, from the last ones that did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_outbox.conf import outbox_settings
from django_outbox.databases.clock import as_utc
from django_outbox.models import OutboxMessageQuerySet

#: Published messages that are looked at, the last ones first.
SAMPLE = 1_000
#: Over which the rate is taken.
WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Latency:
    """How long messages took until the broker had them: from enqueue, or from when they were due."""

    median: timedelta
    p99: timedelta


def pace(messages: OutboxMessageQuerySet, now: datetime) -> tuple[float | None, Latency | None]:
    """Messages published in a minute, and the latency of the last ones; None where nothing tells.

    Where published rows are deleted at settle (``"published": 0``), nothing does.
    """
    rows = messages.published().order_by("-published_at")
    columns = ("created_at", "available_at", "attempts", "published_at")
    sample = [
        # A message that was scheduled, or replayed, has not waited before it was due. After a failure
        # its due time is another one.
        (as_utc(published_at), published_at - (created_at if attempts > 1 else available_at))
        for created_at, available_at, attempts, published_at in rows.values_list(*columns)[:SAMPLE]
    ]
    if not sample:
        keeps_none = outbox_settings().retention.published == timedelta(0)
        return (None if keeps_none else 0.0), None
    waits = sorted(max(wait, timedelta(0)) for _, wait in sample)
    latency = Latency(waits[(len(waits) - 1) // 2], waits[-(-len(waits) * 99 // 100) - 1])
    return _per_minute([published_at for published_at, _ in sample], now), latency


def _per_minute(published: list[datetime], now: datetime) -> float:
    recent = [moment for moment in published if moment > now - WINDOW]
    if len(recent) < SAMPLE:
        return len(recent) / (WINDOW / timedelta(minutes=1))
    # More than the sample within the window: over the time that the sample spans.
    span = max(now - recent[-1], timedelta(milliseconds=1))
    return len(recent) / (span / timedelta(minutes=1))
