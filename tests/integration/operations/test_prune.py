"""What is pruned, and what is not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_delete
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.models import OutboxMessage, ProcessedMessage, Status
from django_outbox.operations.discard import discard
from django_outbox.operations.prune import prune
from django_outbox.operations.selection import every_message
from django_outbox.relay.loop import Relay
from django_outbox.testing import ScriptedPublisher
from tests.conftest import EVERY_DATABASE
from tests.support.plans import explained
from tests.support.stored import stored
from tests.support.threads import elsewhere

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
NOW = timezone.now()


def aged(status, days):
    moment = NOW - timedelta(days=days)
    times = {"created_at": moment, "available_at": moment}
    return stored(
        status, **times, **({"published_at": moment} if status == Status.PUBLISHED else {})
    )


def kept():
    return set(OutboxMessage.objects.all())


@everywhere
def test_each_status_has_its_own_retention(database, outbox_settings):
    outbox_settings(
        RETENTION={
            "published": timedelta(days=1),
            "discarded": timedelta(days=2),
            "dead": timedelta(days=3),
        }
    )
    for status, days in ((Status.PUBLISHED, 1), (Status.DISCARDED, 2), (Status.DEAD, 3)):
        aged(status, days + 0.5)
    expected = {
        aged(Status.PUBLISHED, 0.5),
        aged(Status.DISCARDED, 1.5),
        aged(Status.DEAD, 2.5),
        aged(Status.PENDING, 400),
    }
    pruned = prune()
    assert (pruned.published, pruned.discarded, pruned.dead) == (1, 1, 1)
    assert kept() == expected


@everywhere
def test_what_is_dead_is_kept_for_ever_unless_a_retention_says_otherwise(database):
    expected = {aged(Status.DEAD, 4000), aged(Status.PENDING, 4000)}
    assert prune().is_complete
    assert kept() == expected


@everywhere
def test_with_no_retention_nothing_is_pruned(database, outbox_settings):
    outbox_settings(RETENTION={"published": None, "discarded": None, "processed": None})
    expected = {aged(Status.PUBLISHED, 4000), aged(Status.DISCARDED, 4000)}
    prune()
    assert kept() == expected


@everywhere
def test_what_is_discarded_is_kept_from_then_on(database, outbox_settings):
    outbox_settings(RETENTION={"discarded": timedelta(days=30)})
    row = aged(Status.DEAD, 400)
    discard(every_message())
    prune()
    assert kept() == {row}


@everywhere
def test_a_retention_of_nothing_deletes_at_settle(database, outbox_settings):
    outbox_settings(RETENTION={"published": 0})
    with transaction.atomic():
        enqueue("invoice.issued", {})
    publisher = ScriptedPublisher()
    assert Relay(publisher_for=lambda alias: publisher).drain().published == 1
    assert len(publisher.received) == 1
    assert kept() == set()


@everywhere
def test_pruning_goes_on_in_chunks_until_nothing_is_due(database):
    for _ in range(7):
        aged(Status.PUBLISHED, 30)
    assert prune(chunk=3).published == 7
    assert kept() == set()


def test_what_is_left_when_time_is_up_is_said(database):
    for _ in range(3):
        aged(Status.PUBLISHED, 30)
    pruned = prune(max_seconds=0)
    assert not pruned.is_complete
    assert len(kept()) == 3


@everywhere
def test_a_dry_run_counts_and_deletes_nothing(database):
    aged(Status.PUBLISHED, 30)
    ProcessedMessage.objects.create(
        consumer="c", message_id=stored().message_id, processed_at=NOW - timedelta(days=30)
    )
    pruned = prune(dry_run=True)
    assert (pruned.published, pruned.processed) == (1, 1)
    assert OutboxMessage.objects.count() == 2


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_row_that_somebody_holds_is_passed_over(database):
    held, _ = aged(Status.PUBLISHED, 30), aged(Status.PUBLISHED, 30)
    with transaction.atomic():
        OutboxMessage.objects.select_for_update().get(pk=held.pk)
        assert elsewhere(prune).result(60).published == 1
    assert kept() == {held}
    assert prune().published == 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_indexes_are_walked_whatever_the_statistics_say(database, outbox_settings):
    """They describe a queue as it was: read from end to end for each chunk, it would take for ever."""
    outbox_settings(RETENTION={"dead": timedelta(days=1)})
    for status in (Status.PUBLISHED, Status.DEAD, Status.DISCARDED):
        aged(status, 60)
    with explained() as statements:
        assert prune().published == 1
    plans = [each.plan for each in statements if "outboxmessage" in each.sql and each.plan]
    assert len(plans) >= 3
    for plan in plans:
        assert "Seq Scan on django_outbox_outboxmessage" not in plan
        assert "Sort" not in plan


def test_whoever_listens_to_every_deletion_makes_pruning_load_no_payload(database):
    aged(Status.PUBLISHED, 400)
    told = []

    def receiver(instance, **kwargs):
        told.append(instance.pk)

    post_delete.connect(receiver)
    try:
        with CaptureQueriesContext(connection) as queries:
            assert prune().published == 1
    finally:
        post_delete.disconnect(receiver)
    assert len(told) == 1
    assert not [query["sql"] for query in queries if '"payload"' in query["sql"]]
