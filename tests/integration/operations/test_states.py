"""What is what, by the database's clock, on every database."""

from __future__ import annotations

import pytest

from django_outbox.conf import outbox_settings as settings_in_force
from django_outbox.models import OutboxMessage, Status
from django_outbox.relay.claim import limits_of
from django_outbox.topics import EVERY_TOPIC
from tests.conftest import EVERY_DATABASE
from tests.support.stored import backing_off, in_flight, lapsed, scheduled, stored

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)

A, B = ("invoice", "a"), ("invoice", "b")


def test_each_pending_message_is_in_one_state(database):
    rows = {
        "ready": stored(),
        "scheduled": scheduled(),
        "retrying": backing_off(),
        "in_flight": in_flight(),
    }
    for state, row in rows.items():
        assert list(getattr(OutboxMessage.objects, state)()) == [row], state
    back = lapsed()
    assert set(OutboxMessage.objects.retrying()) == {rows["retrying"], back}
    assert OutboxMessage.objects.pending().count() == 5


def test_what_is_settled_is_in_no_state_of_the_pending(database):
    for status in (Status.PUBLISHED, Status.DEAD, Status.DISCARDED):
        stored(status)
    for state in ("ready", "scheduled", "retrying", "in_flight", "blocked"):
        assert not getattr(OutboxMessage.objects, state)().exists(), state


def test_a_message_is_blocked_while_another_of_its_aggregate_is_tried(database):
    backing_off(aggregate=A)
    behind = [stored(aggregate=A), scheduled(aggregate=A), backing_off(aggregate=A)]
    stored(aggregate=B)
    stored()
    backing_off()
    assert set(OutboxMessage.objects.blocked()) == set(behind)


def test_a_dead_message_blocks_where_its_route_says_so(database, outbox_settings):
    stored(Status.DEAD, aggregate=A)
    behind = stored(aggregate=A)
    assert not OutboxMessage.objects.blocked().exists()
    outbox_settings(ROUTES=[("invoice.*", {"on_dead": "block"})])
    assert list(OutboxMessage.objects.blocked()) == [behind]


def test_nothing_is_blocked_where_order_is_not_kept(database, outbox_settings):
    backing_off(aggregate=A)
    stored(aggregate=A)
    outbox_settings(ROUTES=[("invoice.*", {"ordering": "none"})])
    assert not OutboxMessage.objects.blocked().exists()


def test_blocked_is_what_a_claim_leaves(database, outbox_settings):
    outbox_settings(
        ROUTES=[
            ("audit.#", {"ordering": "none"}),
            ("invoice.*", {"on_dead": "block"}),
            ("#", {}),
        ]
    )
    lapsed(aggregate=A)
    stored(aggregate=A)
    lapsed(aggregate=A)
    stored(Status.DEAD, aggregate=B)
    lapsed(aggregate=B)
    stored(aggregate=B, topic="audit.seen")
    stored(aggregate=B)
    stored(Status.DEAD, aggregate=("customer", "1"), topic="customer.left")
    stored(aggregate=("customer", "1"), topic="customer.left")
    stored()
    left = set(OutboxMessage.objects.blocked().values_list("id", flat=True))
    due = set(OutboxMessage.objects.due().values_list("id", flat=True))
    batch = database.claim(limits_of(settings_in_force(), EVERY_TOPIC), "host:1")
    assert {each.row_id for each in batch.claimed} == due - left
    assert len(left) == 4
