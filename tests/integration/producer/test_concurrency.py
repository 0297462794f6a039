"""Two transactions that enqueue the same event at the same time."""

from __future__ import annotations

import uuid

import pytest
from django.db import transaction

from django_outbox import Event, enqueue, enqueue_many
from django_outbox.exceptions import DuplicateMessageId
from django_outbox.models import OutboxMessage
from tests.conftest import EVERY_DATABASE
from tests.support.isolation import isolation
from tests.support.threads import Worker
from tests.support.waiting import wait_for_a_waiting_connection
from tests.testapp.models import Invoice

__all__ = ["isolation"]

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
OWN = uuid.uuid5(uuid.NAMESPACE_URL, "https://example.com/payments/1")


def enqueue_second(on_conflict):
    with transaction.atomic():
        Invoice.objects.create(number="second")
        written = enqueue("a.b", {"n": 2}, message_id=OWN, on_conflict=on_conflict)
        Invoice.objects.create(number="the transaction goes on")
    return written


def while_the_first_is_open(on_conflict, *, commits):
    """What the second call comes to, when the first transaction ends while it waits."""
    with transaction.atomic():
        enqueue("a.b", {"n": 1}, message_id=OWN)
        second = Worker(enqueue_second, on_conflict)
        # Asked over another connection: this one is in the transaction that is waited for.
        looking = Worker(wait_for_a_waiting_connection)
        looking.result()
        assert second.is_at_work
        transaction.set_rollback(not commits)
    return second.result()


@everywhere
def test_the_second_waits_and_is_passed_over_when_the_first_commits(database):
    assert while_the_first_is_open("ignore", commits=True) is None
    assert OutboxMessage.objects.get().payload == {"n": 1}
    assert Invoice.objects.count() == 2


@everywhere
def test_the_second_waits_and_is_refused_when_the_first_commits(database):
    with pytest.raises(DuplicateMessageId):
        while_the_first_is_open("raise", commits=True)
    assert OutboxMessage.objects.get().payload == {"n": 1}
    assert Invoice.objects.count() == 0


@everywhere
def test_the_second_is_written_when_the_first_is_rolled_back(database):
    written = while_the_first_is_open("raise", commits=False)
    assert OutboxMessage.objects.get() == written
    assert written.payload == {"n": 2}


@everywhere
def test_many_writers_of_one_event_write_it_once(database):
    def write(number):
        with transaction.atomic():
            return enqueue("a.b", {"n": number}, message_id=OWN, on_conflict="ignore")

    written = [worker.result() for worker in [Worker(write, number) for number in range(6)]]
    assert written.count(None) == 5
    assert OutboxMessage.objects.count() == 1


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
@pytest.mark.parametrize("isolation", ["repeatable read"], indirect=True)
def test_an_event_that_the_transaction_cannot_see_yet_is_known_all_the_same(database, isolation):
    def enqueue_elsewhere():
        with transaction.atomic():
            enqueue("a.b", {"n": 1}, message_id=OWN)

    events = [Event("a.b", {"n": 2}, message_id=OWN), Event("a.b", {"n": 3})]
    with transaction.atomic():
        assert not OutboxMessage.objects.exists(), "from here on it sees this moment"
        Worker(enqueue_elsewhere).result()
        assert enqueue("a.b", {"n": 2}, message_id=OWN, on_conflict="ignore") is None
        assert [m.payload for m in enqueue_many(events, on_conflict="ignore")] == [{"n": 3}]
        with pytest.raises(DuplicateMessageId):
            enqueue_many(events)
        enqueue("a.b", {"n": 4})
    assert sorted(m.payload["n"] for m in OutboxMessage.objects.all()) == [1, 3, 4]
