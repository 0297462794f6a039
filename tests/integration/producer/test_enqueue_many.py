"""Any number of events at once: few statements, all or none, in order."""

from __future__ import annotations

import uuid

import pytest
from django.db import transaction

from django_outbox import Event, enqueue, enqueue_many
from django_outbox.exceptions import DuplicateMessageId, InvalidPayload
from django_outbox.models import OutboxMessage
from django_outbox.signals import message_enqueued
from tests.conftest import EVERY_DATABASE
from tests.testapp.models import Invoice

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def numbers():
    return [
        payload["n"]
        for payload in OutboxMessage.objects.order_by("id").values_list("payload", flat=True)
    ]


@everywhere
def test_ten_thousand_events_take_ten_statements(database, django_assert_num_queries):
    events = [Event("a.b", {"n": n}, aggregate=("a", n % 7)) for n in range(10_000)]
    with transaction.atomic(), django_assert_num_queries(10):
        written = enqueue_many(events)
    assert [message.payload["n"] for message in written] == list(range(10_000))
    assert numbers() == list(range(10_000))


@everywhere
def test_ids_of_their_own_cost_a_savepoint_more(database, django_assert_num_queries):
    events = [Event("a.b", {"n": n}, message_id=uuid.uuid4()) for n in range(2_500)]
    with transaction.atomic(), django_assert_num_queries(3 + 2):
        enqueue_many(events)
    assert len(numbers()) == 2_500


@everywhere
def test_the_order_of_the_events_is_the_order_of_their_ids(database):
    with transaction.atomic():
        written = enqueue_many(Event("a.b", {"n": n}) for n in range(1_500))
    ids = [message.pk for message in written]
    assert ids == sorted(ids)
    assert [message.payload["n"] for message in written] == list(range(1_500))
    assert {m.pk: m.payload for m in OutboxMessage.objects.all()} == {
        m.pk: m.payload for m in written
    }


def test_no_events_are_no_statement(database, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert enqueue_many([]) == []


@everywhere
def test_one_that_is_refused_refuses_all(database, django_assert_num_queries):
    events = [Event("a.b", {"n": 1}), Event("a.b", {"n": object()}), Event("a.b", {"n": 3})]
    with transaction.atomic():
        with django_assert_num_queries(0), pytest.raises(InvalidPayload):
            enqueue_many(events)
        Invoice.objects.create(number="the transaction goes on")
    assert numbers() == []
    assert Invoice.objects.count() == 1


@everywhere
def test_a_message_id_that_is_known_refuses_all(database):
    own = uuid.uuid4()
    with transaction.atomic():
        enqueue("a.b", {"n": 0}, message_id=own)
    events = [Event("a.b", {"n": n}) for n in range(1, 1_200)]
    events.append(Event("a.b", {"n": 9_999}, message_id=own))
    with transaction.atomic():
        with pytest.raises(DuplicateMessageId, match=str(own)):
            enqueue_many(events)
        Invoice.objects.create(number="the transaction goes on")
        enqueue("a.b", {"n": 1})
    assert numbers() == [0, 1]
    assert Invoice.objects.count() == 1


@everywhere
def test_a_message_id_that_stands_twice_refuses_all(database, django_assert_num_queries):
    own = uuid.uuid4()
    events = [Event("a.b", {"n": n}, message_id=own) for n in range(2)]
    with transaction.atomic(), django_assert_num_queries(0), pytest.raises(DuplicateMessageId):
        enqueue_many(events)


@everywhere
def test_known_message_ids_may_be_passed_over(database):
    own, twice = uuid.uuid4(), uuid.uuid4()
    with transaction.atomic():
        enqueue("a.b", {"n": 0}, message_id=own)
    events = [
        Event("a.b", {"n": 1}),
        Event("a.b", {"n": 2}, message_id=own),
        Event("a.b", {"n": 3}, message_id=twice),
        Event("a.b", {"n": 4}, message_id=twice),
        Event("a.b", {"n": 5}),
    ]
    with transaction.atomic():
        written = enqueue_many(events, on_conflict="ignore")
        Invoice.objects.create(number="the transaction goes on")
    assert [message.payload["n"] for message in written] == [1, 3, 5]
    assert numbers() == [0, 1, 3, 5]


@everywhere
def test_due_times_may_differ_within_one_statement(database, django_assert_num_queries):
    with transaction.atomic(), django_assert_num_queries(1):
        now, later = enqueue_many([Event("a.b", {}), Event("a.b", {}, delay=60)])
    assert now.available_at == now.created_at
    assert (later.available_at - later.created_at).total_seconds() == 60


def test_listeners_hear_of_all_at_once(database):
    heard = []

    def listen(messages, **kwargs):
        heard.append(messages)

    message_enqueued.connect(listen)
    try:
        with transaction.atomic():
            written = enqueue_many([Event("a.b", {}), Event("a.c", {})])
    finally:
        message_enqueued.disconnect(listen)
    assert heard == [written]


def test_an_event_shows_neither_payload_nor_ids():
    shown = repr(
        Event(
            "customer.moved",
            {"name": "Jane Doe"},
            aggregate=("customer", "jane@example.com"),
            headers={"user": "jane"},
            correlation_id="jane",
        )
    )
    assert "customer.moved" in shown
    assert "jane" not in shown.lower()
