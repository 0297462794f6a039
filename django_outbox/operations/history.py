"""How many messages were published in each of the last minutes, for a glance at the trend."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connections
from django.db.models.functions import TruncMinute

from django_outbox.databases.clock import DatabaseNow, as_moment
from django_outbox.databases.estimates import compiled
from django_outbox.models import OutboxMessageQuerySet

#: The minutes that are told, the present one included.
MINUTES = 30
#: Published messages that are counted, the last ones first, from the index that prunes them.
COUNTED = 100_000

_BY_MINUTE = "SELECT minute, count(*) FROM ({rows}) AS published GROUP BY minute"


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of the database's clock."""

    begins: datetime
    published: int


def published_by_minute(messages: OutboxMessageQuerySet, now: datetime) -> tuple[Minute, ...]:
    """The last ``MINUTES``, the oldest first; fewer where there are more messages than are counted.

    Each minute is counted in full, but for the present one, which is not over. Rows that were deleted,
    at settle or by pruning, are missing.
    """
    present = now.replace(second=0, microsecond=0)
    first = present - timedelta(minutes=MINUTES - 1)
    rows = (
        messages.published()
        .filter(published_at__gte=DatabaseNow() - timedelta(minutes=MINUTES))
        .order_by("-published_at")
        .annotate(minute=TruncMinute("published_at", tzinfo=UTC))
    )
    sql, params = compiled(rows.values("minute")[:COUNTED])
    connection = connections[messages.db]
    with connection.cursor() as cursor:
        cursor.execute(_BY_MINUTE.format(rows=sql), params)
        found = {as_moment(minute, connection): number for minute, number in cursor.fetchall()}
    if sum(found.values()) >= COUNTED:
        # The oldest minute was not counted to its end.
        first = min(found) + timedelta(minutes=1)
    minutes = max((present - first) // timedelta(minutes=1), 0) + 1
    begins = (present - timedelta(minutes=ago) for ago in reversed(range(minutes)))
    return tuple(Minute(moment, found.get(moment, 0)) for moment in begins)
