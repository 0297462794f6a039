"""What collect_stats says of tables whose state is known."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessage, RelayProcess, Status
from django_outbox.operations import counts, failures, pace
from django_outbox.operations.stats import collect_stats
from tests.conftest import EVERY_DATABASE
from tests.support.plans import explained
from tests.support.stored import AN_HOUR, backing_off, lapsed, stored

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


@everywhere
def test_an_empty_outbox_has_nothing_to_say(database):
    stats = collect_stats()
    assert {count.number for count in stats.counts.values()} == {0}
    assert stats.oldest_due is None
    assert stats.latency is None
    assert stats.published_per_minute == 0
    assert stats.failures == stats.relays == stats.broker_down == ()
    assert abs(stats.taken_at - timezone.now()) < AN_HOUR


@everywhere
@pytest.mark.parametrize("use_tz", [True, False])
def test_times_are_the_databases_whatever_django_makes_of_them(database, settings, use_tz):
    settings.USE_TZ = use_tz
    OutboxMessage.objects.filter(pk=stored().pk).update(
        available_at=DatabaseNow() - timedelta(minutes=5)
    )
    stats = collect_stats()
    assert timedelta(minutes=5) <= stats.oldest_due < timedelta(minutes=6)
    assert stats.taken_at.utcoffset() == timedelta(0)


@everywhere
def test_more_than_are_counted_are_estimated_and_flagged(database, monkeypatch):
    monkeypatch.setattr(counts, "COUNTED", 5)
    for _ in range(12):
        stored(Status.PUBLISHED)
        stored(aggregate=("t", "1"))
    for _ in range(5):
        stored(Status.DEAD)
    found = collect_stats().counts
    assert found["published"].is_estimate
    assert found["ready"].is_estimate
    assert found["published"].number >= 5
    assert found["blocked"].is_estimate, "only the first of the pending were looked at"
    assert (found["dead"].number, found["dead"].is_estimate) == (5, False)


@everywhere
def test_at_most_ten_statements(database, monkeypatch):
    monkeypatch.setattr(counts, "COUNTED", 1)
    for status in [*Status, *Status]:
        stored(status)
    backing_off()
    with explained() as statements:
        collect_stats()
    assert len(statements) <= 10


@everywhere
def test_failures_are_grouped_by_what_is_wrong(database):
    now = timezone.now()
    for hours in range(1, 4):
        stored(Status.DEAD, last_error="nack", created_at=now - hours * AN_HOUR)
    stored(Status.DEAD, last_error="nack\ndiscarded: no, after all not")
    stored(Status.DEAD, last_error="nack", topic="invoice.paid")
    backing_off(last_error="no confirm within 20 s")
    lapsed()
    found = {(each.error, each.topic, str(each.status)): each for each in collect_stats().failures}
    assert {key: each.count for key, each in found.items()} == {
        ("nack", "invoice.issued", "dead"): 4,
        ("nack", "invoice.paid", "dead"): 1,
        ("no confirm within 20 s", "invoice.issued", "pending"): 1,
        ("", "invoice.issued", "pending"): 1,
    }
    oldest = found["nack", "invoice.issued", "dead"].oldest
    assert abs(oldest - (now - 3 * AN_HOUR)) < timedelta(seconds=1)


def test_the_largest_groups_of_failures_come_first_and_they_are_few(database, monkeypatch):
    monkeypatch.setattr(failures, "GROUPS", 3)
    for kind in range(5):
        for _ in range(kind + 1):
            stored(Status.DEAD, last_error=f"error {kind}")
    assert [(each.error, each.count) for each in collect_stats().failures] == [
        ("error 4", 5),
        ("error 3", 4),
        ("error 2", 3),
    ]


@everywhere
def test_groups_are_estimates_where_more_fail_than_are_looked_at_listed_or_not(
    database, monkeypatch
):
    monkeypatch.setattr(failures, "GROUPS", 2)
    for kind in range(5):
        stored(Status.DEAD, last_error=f"error {kind}")
    assert [each.is_estimate for each in collect_stats().failures] == [False, False]
    monkeypatch.setattr(failures, "GROUPED", 4)
    assert [each.is_estimate for each in collect_stats().failures] == [True, True]


@everywhere
def test_the_rate_is_that_of_the_last_minute(database):
    for seconds in (1, 2, 3, 70):
        stored(Status.PUBLISHED, published_at=timezone.now() - timedelta(seconds=seconds))
    assert collect_stats().published_per_minute == 3


def test_a_rate_beyond_the_sample_is_taken_over_the_time_it_spans(database, monkeypatch):
    monkeypatch.setattr(pace, "SAMPLE", 10)
    now = timezone.now()
    for number in range(30):
        stored(Status.PUBLISHED, published_at=now - number * timedelta(seconds=1))
    # The sample spans nine seconds, and what has passed since.
    assert 30 < collect_stats().published_per_minute <= 10 * 60 / 9


def test_where_published_rows_are_deleted_no_rate_is_known(database, outbox_settings):
    outbox_settings(RETENTION={"published": 0})
    assert collect_stats().published_per_minute is None


@everywhere
def test_latency_counts_from_when_a_message_was_due(database):
    now = timezone.now()
    second = timedelta(seconds=1)
    for _ in range(98):
        stored(
            Status.PUBLISHED, created_at=now - second, available_at=now - second, published_at=now
        )
    # Scheduled for two seconds ago, enqueued an hour before.
    stored(
        Status.PUBLISHED, created_at=now - AN_HOUR, available_at=now - 2 * second, published_at=now
    )
    # Tried twice: its due time is that of the second try.
    stored(
        Status.PUBLISHED,
        created_at=now - 9 * second,
        available_at=now - second,
        published_at=now,
        attempts=2,
    )
    latency = collect_stats().latency
    assert latency == pace.Latency(median=second, p99=2 * second)


@everywhere
def test_relays_and_what_they_find_down_are_listed(database):
    since = timezone.now().replace(microsecond=0)
    outage = {"reason": "refused", "since": since.isoformat()}
    RelayProcess.objects.create(name="up:1", breakers={"b": outage})
    RelayProcess.objects.create(name="stopped:1", stopped_at=timezone.now())
    silent = RelayProcess.objects.create(name="silent:1", breakers={"c": {"reason": "?"}})
    RelayProcess.objects.filter(pk=silent.pk).update(seen_at=DatabaseNow() - timedelta(minutes=2))
    stats = collect_stats()
    assert {relay.name: relay.is_alive for relay in stats.relays} == {
        "up:1": True,
        "stopped:1": False,
        "silent:1": False,
    }
    assert stats.broker_down == ("b",)
    [alive] = [relay for relay in stats.relays if relay.is_alive]
    assert alive.open_breakers == {"b": "refused"}
    assert alive.open_since == {"b": since}
