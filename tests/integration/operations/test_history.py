"""Published minute by minute: whole minutes only, from no more rows than are counted."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from django_outbox.databases import Database
from django_outbox.databases.clock import read_clock
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations import history
from django_outbox.operations.history import MINUTES, published_by_minute
from tests.conftest import EVERY_DATABASE

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def published(now, *minutes_ago: int) -> list[int]:
    begin = now.replace(second=0, microsecond=0)
    for minutes in minutes_ago:
        OutboxMessage.objects.create(
            message_id=uuid.uuid4(),
            topic="a.b",
            payload={},
            status=Status.PUBLISHED,
            published_at=begin - timedelta(minutes=minutes),
        )
    found = published_by_minute(OutboxMessage.objects.all(), now)
    assert [m.begins for m in found] == [
        begin - timedelta(minutes=ago) for ago in reversed(range(len(found)))
    ]
    return [minute.published for minute in found]


@everywhere
def test_each_minute_has_its_number_and_what_is_older_is_left_out(database: Database):
    numbers = published(read_clock("default"), 0, 3, 3, 29, 31)
    assert len(numbers) == MINUTES
    assert {ago: n for ago, n in enumerate(reversed(numbers)) if n} == {0: 1, 3: 2, 29: 1}


@everywhere
def test_a_minute_that_was_not_counted_to_its_end_is_left_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(history, "COUNTED", 4)
    assert published(read_clock("default"), 1, 1, 2, 5, 5) == [0, 0, 1, 2, 0]


@everywhere
def test_without_published_messages_every_minute_is_empty(database: Database):
    assert published(read_clock("default")) == [0] * MINUTES
