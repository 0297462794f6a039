from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_outbox.models import Status
from django_outbox.operations.selection import Selection
from tests.conftest import EVERY_DATABASE
from tests.support.stored import AN_HOUR, stored

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def chosen(**by):
    return set(Selection(**by).messages())


@everywhere
def test_each_filter_narrows_the_choice(database):
    now = timezone.now()
    old = stored(Status.DEAD, last_error="REJECTED: No Queue", created_at=now - 2 * AN_HOUR)
    audit = stored(topic="audit.seen.twice", aggregate=("user", "7"), correlation_id="c-1")
    tagged = stored(topic="invoice.paid", aggregate=("user", "8"), index_tag="i1:abc")
    assert chosen() == {old, audit, tagged}
    assert chosen(statuses=frozenset({Status.DEAD})) == {old}
    assert chosen(topics=("invoice.*",)) == {old, tagged}
    assert chosen(topics=("invoice.paid", "audit.#")) == {audit, tagged}
    assert chosen(aggregate_type="user") == {audit, tagged}
    assert chosen(aggregate_type="user", aggregate_id="7") == {audit}
    assert chosen(error="no queue") == {old}
    assert chosen(created_before=now - AN_HOUR) == {old}
    assert chosen(created_after=now - AN_HOUR, topics=("#",)) == {audit, tagged}
    assert chosen(message_ids=(old.message_id, audit.message_id)) == {old, audit}
    assert chosen(correlation_id="c-1") == {audit}
    assert chosen(index_tags=("i1:abc", "i2:def")) == {tagged}


@everywhere
def test_topics_are_told_apart_by_case(database):
    stored(topic="invoice.Issued")
    assert chosen(topics=("invoice.issued",)) == set()


def test_what_is_no_pattern_is_refused():
    with pytest.raises(ValueError, match="is not a topic pattern"):
        Selection(topics=("invoice.is*",))


def test_a_description_names_what_was_given_and_no_persons_value():
    since = timezone.now().replace(microsecond=0) - timedelta(days=1)
    selection = Selection(
        statuses=frozenset({Status.DEAD, Status.PENDING}),
        topics=("invoice.*",),
        aggregate_type="user",
        error="nack",
        created_after=since,
        index_tags=("i1:abc",),
    )
    assert selection.describe() == (
        "dead or pending, topic invoice.*, aggregate user:*, error containing 'nack', since"
        f" {since:%Y-%m-%d %H:%M:%S} UTC, of one person"
    )
    assert Selection().describe() == "all messages"


def test_a_status_alone_narrows_nothing():
    assert not Selection(statuses=frozenset({Status.DEAD})).is_narrowed
    assert Selection(error="nack").is_narrowed
