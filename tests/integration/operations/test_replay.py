from __future__ import annotations

import pytest

from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.replay import replay
from django_outbox.operations.selection import every_message
from django_outbox.relay.loop import Relay
from django_outbox.testing import ScriptedPublisher
from tests.conftest import EVERY_DATABASE
from tests.support.stored import in_flight, stored

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


@everywhere
def test_a_published_message_goes_out_again_under_its_id(database):
    first, second = [stored(Status.PUBLISHED, aggregate=("t", "1")) for _ in range(2)]
    assert replay(every_message()).replayed == 2
    publisher = ScriptedPublisher()
    Relay(publisher_for=lambda alias: publisher).drain()
    assert [message.id for message in publisher.received] == [first.message_id, second.message_id]
    first.refresh_from_db()
    assert (first.status, first.attempts) == (Status.PUBLISHED, 1)


@everywhere
def test_only_the_published_are_replayed(database):
    for status in (Status.PENDING, Status.DEAD, Status.DISCARDED):
        stored(status)
    in_flight()
    before = list(OutboxMessage.objects.order_by("id").values())
    done = replay(every_message())
    assert (done.replayed, done.in_flight, done.not_published) == (0, 1, 3)
    assert list(OutboxMessage.objects.order_by("id").values()) == before
