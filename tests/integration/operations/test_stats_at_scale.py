"""However many rows there are: few statements, none of which reads the table from end to end."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from django_outbox.databases import Database
from django_outbox.operations.stats import collect_stats
from tests.support.bulk_rows import fill, text
from tests.support.plans import explained

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)

_LATER = "statement_timestamp() + interval '1 hour'"
_READS_IT_ALL = re.compile(r"Seq Scan on django_outbox_outboxmessage")


def crowd(published: int, dead: int) -> None:
    """A table as it looks after a while: most is published, some is dead, a little is under way."""
    fill(published, text("n"), status="'published'", published_at="statement_timestamp()")
    fill(dead, text("n"), status="'dead'", last_error="'nack ' || n % 7", attempts="10")
    fill(dead // 10, text("n % 100"), attempts="1", available_at=_LATER, last_error="'nack'")
    fill(dead // 10, text("n % 200"))
    fill(dead // 10, text("n"), available_at=_LATER)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE django_outbox_outboxmessage")


def look(published: int, dead: int) -> None:
    with explained() as statements:
        stats = collect_stats()
    assert len(statements) <= 10
    assert [each for each in statements if _READS_IT_ALL.search(each.plan)] == []
    exact = {state: count.number for state, count in stats.counts.items() if not count.is_estimate}
    assert exact["ready"] == exact["scheduled"] == exact["retrying"] == dead // 10
    assert stats.counts["blocked"].number > 0
    assert sum(group.count for group in stats.failures) == dead + dead // 10
    estimate = stats.counts["published"]
    assert estimate.is_estimate
    assert published * 0.9 < estimate.number < published * 1.1


def test_an_index_serves_every_statement(database: Database) -> None:
    crowd(20_000, 5_000)
    with connection.cursor() as cursor:
        # Reading a table of this size from end to end would be right: asked is whether it could be
        # avoided.
        cursor.execute("SET enable_seqscan = off")
    look(20_000, 5_000)


@pytest.mark.deep
def test_five_million_published_and_fifty_thousand_dead_are_not_read(database: Database) -> None:
    crowd(5_000_000, 50_000)
    look(5_000_000, 50_000)
