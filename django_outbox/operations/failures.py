"""What is wrong, by kind: dead and retrying messages grouped by the head of their last error, and topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import connections
from django.db.models.functions import Left

from django_outbox.databases.clock import as_moment
from django_outbox.databases.estimates import compiled
from django_outbox.models import OutboxMessageQuerySet, Status

#: Groups that are listed, and characters of an error that tell them apart.
GROUPS = 20
HEAD = 100
#: Messages of a status that are looked at. Of more than these, groups are flagged as estimates.
GROUPED = 100_000

# The sum is that of all groups: it is taken before the LIMIT.
_GROUPED = """
SELECT head, topic, count(*), min(created_at), sum(count(*)) OVER () FROM ({rows}) AS failing
GROUP BY head, topic ORDER BY 3 DESC, head, topic LIMIT {groups}
"""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Messages of one topic that failed in the same way."""

    error: str
    """The beginning of the last error; empty for those whose relay never came back to say."""
    topic: str
    status: Status
    """Dead, or pending: those that are still retried, or that a relay tries right now."""
    count: int
    oldest: datetime
    """When the oldest of them was enqueued."""
    is_estimate: bool = False
    """There are more failing messages than are looked at: at least so many."""


def failure_groups(messages: OutboxMessageQuerySet) -> tuple[FailureGroup, ...]:
    """The largest groups, at most ``GROUPS`` of them."""
    busy = ("aggregate_type", "aggregate_id", "id")
    groups = [
        *_groups(messages.dead().order_by("published_at"), Status.DEAD),
        *_groups(messages.retrying().order_by(*busy), Status.PENDING),
    ]
    groups.sort(key=lambda group: -group.count)
    return tuple(groups[:GROUPS])


def _groups(messages: OutboxMessageQuerySet, status: Status) -> Iterator[FailureGroup]:
    connection = connections[messages.db]
    rows = messages.annotate(head=Left("last_error", HEAD))
    sql, params = compiled(rows.values("head", "topic", "created_at")[:GROUPED])
    with connection.cursor() as cursor:
        cursor.execute(_GROUPED.format(rows=sql, groups=GROUPS), params)
        found = cursor.fetchall()
    merged: dict[tuple[str, str], FailureGroup] = {}
    for head, topic, count, oldest, looked_at in found:
        # What people have noted stands on lines below.
        error = head.partition("\n")[0].strip()
        since = as_moment(oldest, connection)
        group = FailureGroup(error, topic, status, count, since, looked_at >= GROUPED)
        known = merged.get((error, topic))
        merged[error, topic] = group if known is None else _together(known, group)
    yield from merged.values()


def _together(one: FailureGroup, other: FailureGroup) -> FailureGroup:
    return FailureGroup(
        one.error,
        one.topic,
        one.status,
        one.count + other.count,
        min(one.oldest, other.oldest),
        one.is_estimate,
    )
