from __future__ import annotations

import pytest

from django_outbox.consumers.registry import consumer, isolated_registry
from django_outbox.event_types.registry import event_type, forget_event_type

LOCAL = {"default": {"BACKEND": "django_outbox.publishers.local.LocalPublisher"}}


@pytest.fixture
def consumers():
    with isolated_registry():
        yield


@pytest.fixture
def issued():
    @event_type("parcel.lost")
    class ParcelLost:
        schema = {"type": "object"}

    yield
    forget_event_type("parcel.lost", 1)


def test_two_consumers_under_one_name_are_reported(consumers, run_checks):
    @consumer("a.b", name="ledger")
    def first(message): ...

    @consumer("a.c", name="ledger")
    def second(message): ...

    (message,) = run_checks()
    assert message.id == "django_outbox.E005"
    assert "'ledger'" in message.msg


def test_a_consumer_that_nothing_can_reach_is_reported(consumers, outbox_settings, run_checks):
    @consumer("parcel.lost", "parcel.*", name="claims")
    def handle(message): ...

    outbox_settings(PUBLISHERS=LOCAL, ROUTES=[("invoice.*", {})])
    (message,) = run_checks()
    assert message.id == "django_outbox.W004"
    assert "'claims'" in message.msg


def test_behind_a_broker_a_consumer_may_wait_for_what_others_send(consumers, outbox_settings, ids):
    @consumer("parcel.lost", name="claims")
    def handle(message): ...

    outbox_settings(ROUTES=[("invoice.*", {})])
    assert ids() == []


def test_an_event_type_that_no_route_takes_is_reported(issued, outbox_settings, run_checks, ids):
    assert ids() == []
    outbox_settings(ROUTES=[("invoice.*", {})])
    assert "django_outbox.W005" in ids()
    assert any("'parcel.lost'" in message.msg for message in run_checks())
