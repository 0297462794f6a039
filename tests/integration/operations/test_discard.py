from __future__ import annotations

import pytest

from django_outbox.batches import Published
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.discard import discard
from django_outbox.operations.selection import every_message
from django_outbox.relay.loop import Relay
from django_outbox.testing import ScriptedPublisher
from tests.conftest import EVERY_DATABASE
from tests.support.stored import backing_off, in_flight, lapsed, scheduled, stored

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


@everywhere
def test_dead_and_pending_messages_are_set_aside(database):
    rows = [stored(Status.DEAD), stored(), scheduled(), backing_off(), lapsed()]
    assert discard(every_message()).discarded == len(rows)
    assert set(OutboxMessage.objects.discarded()) == set(rows)
    assert Relay().drain().claimed == 0


@everywhere
def test_what_is_in_flight_or_settled_is_left_alone_and_counted(database):
    in_flight()
    stored(Status.PUBLISHED)
    stored(Status.DISCARDED)
    before = list(OutboxMessage.objects.order_by("id").values())
    done = discard(every_message(), reason="no longer wanted")
    assert (done.discarded, done.in_flight, done.not_discardable) == (0, 1, 2)
    assert list(OutboxMessage.objects.order_by("id").values()) == before


@everywhere
def test_the_reason_is_kept_below_the_last_error(database):
    dead, fresh = stored(Status.DEAD, last_error="nack"), stored()
    discard(every_message(), reason="customer\n was  merged")
    dead.refresh_from_db()
    fresh.refresh_from_db()
    assert dead.last_error == "nack\ndiscarded: customer was merged"
    assert fresh.last_error == "discarded: customer was merged"


@everywhere
def test_what_a_discarded_message_held_back_goes_on(database, outbox_settings):
    outbox_settings(ROUTES=[("#", {"on_dead": "block"})])
    head, second = stored(Status.DEAD, aggregate=("t", "1")), stored(aggregate=("t", "1"))
    publisher = ScriptedPublisher()
    relay = Relay(publisher_for=lambda alias: publisher)
    assert relay.drain().claimed == 0
    discard(every_message().filter(pk=head.pk))
    relay.drain()
    assert [message.id for message in publisher.received] == [second.message_id]


@everywhere
def test_a_relay_that_comes_back_to_a_discarded_message_has_lost_its_lease(database):
    """It had stood still until its lease was over; what it publishes then changes nothing here."""
    row = lapsed()
    token = row.lease_token
    discard(every_message())
    assert database.settle(token, {row.pk: Published()}).lost == 1
    row.refresh_from_db()
    assert row.status == Status.DISCARDED


@everywhere
def test_retention_counts_from_the_discard(database):
    row = stored(Status.DEAD)
    before = row.available_at
    discard(every_message())
    row.refresh_from_db()
    assert row.available_at > before


def test_progress_tells_how_many_were_looked_at(database):
    for _ in range(5):
        stored(Status.DEAD)
    seen = []
    discard(every_message(), chunk=2, progress=seen.append)
    assert seen == [2, 4, 5]
