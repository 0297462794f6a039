"""What the helpers for tests see and say, on every database."""

from __future__ import annotations

import uuid
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import transaction

from django_outbox import Event, enqueue, enqueue_many
from django_outbox.consumers.registry import consumer, isolated_registry
from django_outbox.models import OutboxMessage, Status
from django_outbox.publishers import locmem
from django_outbox.publishers.base import Outcome
from django_outbox.publishers.locmem import LocMemPublisher
from django_outbox.testing import Outbox, ScriptedPublisher
from tests.conftest import EVERY_DATABASE
from tests.testapp.models import LedgerEntry

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


@pytest.fixture
def seen(database):
    return Outbox()


@pytest.fixture(autouse=True)
def _consumers():
    with isolated_registry():
        yield


def commit(topic, payload=None, **options):
    with transaction.atomic():
        return enqueue(topic, payload or {}, **options)


@everywhere
def test_messages_are_listed_in_the_order_of_enqueueing(seen):
    written = [commit("a.b"), commit("a.c")]
    assert seen.messages == written


@everywhere
def test_what_was_rolled_back_is_not_seen(seen):
    with transaction.atomic():
        enqueue("a.b", {})
        transaction.set_rollback(True)
    seen.assert_nothing_enqueued()


@everywhere
def test_an_assertion_names_only_the_members_that_matter(seen):
    own = uuid.uuid4()
    written = commit("invoice.issued", {"id": own, "total": Decimal("9.90"), "lines": [{"n": 1}]})
    assert seen.assert_enqueued("invoice.issued") == written
    found = seen.assert_enqueued("invoice.issued", {"total": Decimal("9.90"), "id": own})
    assert found.payload == {"id": str(own), "total": "9.90", "lines": [{"n": 1}]}
    seen.assert_enqueued("invoice.issued", payload={"lines": [{}]}, count=1)


def test_the_last_of_several_is_returned(seen):
    commit("a.b", {"n": 1})
    last = commit("a.b", {"n": 2})
    commit("a.c", {"n": 3})
    assert seen.assert_enqueued("a.b", count=2) == last


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        ("a.c", {}),
        ("a.b", {"payload": {"n": 2}}),
        ("a.b", {"payload": {"n": 1, "m": 1}}),
        ("a.b", {"count": 2}),
        ("a.b", {"count": 0}),
    ],
)
def test_a_failure_shows_what_was_enqueued_instead(topic, options, seen):
    message = commit("a.b", {"n": 1, "city": "Zürich"})
    with pytest.raises(AssertionError) as failed:
        seen.assert_enqueued(topic, **options)
    text = str(failed.value)
    assert f"{topic!r} should have been enqueued" in text
    assert f"- a.b {message.message_id}" in text
    assert "'city': 'Zürich'" in text


def test_a_failure_says_when_nothing_was_enqueued_at_all(seen):
    with pytest.raises(AssertionError, match="Nothing was enqueued"):
        seen.assert_enqueued("a.b")


def test_a_failure_with_many_messages_stays_readable(seen):
    with transaction.atomic():
        enqueue_many(Event("a.b", {"text": "x" * 5_000}) for _ in range(50))
    with pytest.raises(AssertionError) as failed:
        seen.assert_enqueued("a.c")
    assert "and 30 more" in str(failed.value)
    assert len(str(failed.value)) < 30_000


def test_nothing_enqueued_may_be_said_of_one_topic(seen):
    commit("a.b")
    seen.assert_nothing_enqueued("a.c")
    with pytest.raises(AssertionError, match=r"No 'a.b' should have been enqueued"):
        seen.assert_nothing_enqueued("a.b")
    with pytest.raises(AssertionError, match="Nothing should have been enqueued"):
        seen.assert_nothing_enqueued()


@everywhere
def test_draining_calls_the_consumers_of_this_process_and_what_they_cause(seen):
    @consumer("invoice.issued", name="ledger")
    def book(message):
        LedgerEntry.objects.create(account="a", reference=str(message.payload["n"]))
        enqueue("ledger.booked", {"n": message.payload["n"]})

    first, _ = commit("invoice.issued", {"n": 1}), commit("invoice.issued", {"n": 2})
    published = seen.drain()
    assert sorted(message.topic for message in published) == [
        *["invoice.issued", "invoice.issued", "ledger.booked", "ledger.booked"]
    ]
    assert LedgerEntry.objects.count() == 2
    booked = seen.assert_enqueued("ledger.booked", {"n": 1})
    assert booked.causation_id == str(first.message_id)
    assert {message.status for message in seen.messages} == {Status.PUBLISHED}
    assert seen.drain() == []


def test_draining_reaches_no_broker_whatever_the_settings_say(seen, outbox_settings):
    outbox_settings(
        PUBLISHERS={
            "default": {
                "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
                "URL": "amqp://nowhere.invalid",
                "EXCHANGE": "x",
            }
        }
    )
    commit("nobody.listens")
    assert [message.topic for message in seen.drain()] == ["nobody.listens"]


@everywhere
def test_a_handler_that_raises_fails_the_drain_and_is_shown(seen):
    @consumer("a.b", name="broken")
    def fail(message):
        raise LookupError("the handler's own words")

    commit("a.b", {"secret": "Jane"})
    with pytest.raises(AssertionError, match="consumer 'broken'") as failed:
        seen.drain()
    assert isinstance(failed.value.__cause__, LookupError)
    assert "Jane" not in str(failed.value)


@everywhere
def test_a_failure_may_be_part_of_the_test(seen):
    fails = [True]

    @consumer("a.b", name="mending")
    def handle(message):
        if fails:
            fails.pop()
            raise LookupError

    commit("a.b")
    assert seen.drain(allow_failures=True) == []
    (message,) = seen.messages
    assert (message.status, message.attempts) == (Status.PENDING, 1)
    seen.make_due()
    assert len(seen.drain()) == 1


@everywhere
def test_what_is_not_due_is_not_drained_until_it_is_made_due(seen):
    commit("a.b", delay=timedelta(days=1))
    assert seen.drain() == []
    assert seen.make_due() == 1
    assert len(seen.drain()) == 1


def test_a_drain_tries_each_message_once_however_short_the_pause(seen, outbox_settings):
    outbox_settings(BACKOFF_BASE=0.000001, BACKOFF_CAP=0.000001)
    publisher = ScriptedPublisher(lambda message: Outcome.FAILED)
    commit("a.bad")
    for attempts in (1, 2):
        seen.drain(publisher, allow_failures=True)
        assert len(publisher.received) == seen.messages[0].attempts == attempts
        seen.make_due()


def test_another_publisher_may_be_drained_into(seen):
    publisher = ScriptedPublisher(
        lambda message: Outcome.FAILED if message.topic == "a.bad" else Outcome.CONFIRMED
    )
    commit("a.bad"), commit("a.good")
    published = seen.drain(publisher, allow_failures=True)
    assert [message.topic for message in published] == ["a.good"]
    assert sorted(message.topic for message in publisher.received) == ["a.bad", "a.good"]
    with pytest.raises(AssertionError, match=r"a\.bad .* failed: scripted"):
        seen.make_due(), seen.drain(publisher)


def test_a_broker_that_is_down_ends_the_drain_and_charges_nothing(seen):
    publisher = ScriptedPublisher()
    publisher.is_down = True
    commit("a.b")
    assert seen.drain(publisher, allow_failures=True) == []
    (message,) = seen.messages
    assert (message.status, message.attempts) == (Status.PENDING, 0)
    assert publisher.received == []


def test_clearing_forgets_rows_and_what_was_published(seen):
    commit("a.b")
    seen.drain(LocMemPublisher("default", {}))
    assert len(locmem.outbox) == 1
    seen.clear()
    assert locmem.outbox == []
    assert OutboxMessage.objects.count() == 0
