"""A consumer's process is killed at the worst moments: nothing is lost, nothing counts twice."""

from __future__ import annotations

import random
import time
from uuid import UUID, uuid4

import pytest

from django_outbox.consumers import Consumer, Processed, process_once
from django_outbox.consumers.external import NOT_MADE, Found, NotMade, once_outside
from django_outbox.consumers.http import idempotent_request
from django_outbox.consumers.responses import REPLAYED
from django_outbox.context import context
from django_outbox.exceptions import CallInProgress, OutcomeUnknown
from django_outbox.models import CallState, ExternalCall, ProcessedMessage, StoredResponse
from tests.conftest import EVERY_DATABASE
from tests.support import consumer_children as children
from tests.support.children import Child
from tests.support.messages import received
from tests.support.threads import wait_until
from tests.testapp.models import Balance, LedgerEntry

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)

LEDGER = Consumer(name="ledger", handler=children.book)


def test_killed_between_handling_and_commit_nothing_has_happened_and_it_runs_again(database):
    message = received()
    with Child(children.handle_and_stand_still, str(message.id)) as child:
        child.wait_to_hear("handled")
    assert not LedgerEntry.objects.exists()
    assert process_once(LEDGER, message) is Processed.HANDLED
    assert LedgerEntry.objects.count() == 1
    assert ProcessedMessage.objects.count() == 1


def test_killed_after_the_commit_and_before_the_ack_it_is_a_duplicate(database):
    message = received()
    with Child(children.process_and_stand_still, str(message.id)) as child:
        child.wait_to_hear("processed")
    assert process_once(LEDGER, message) is Processed.DUPLICATE
    assert LedgerEntry.objects.count() == 1


def test_killed_in_a_batch_none_of_it_has_happened(database):
    ids = [str(uuid4()) for _ in range(10)]
    with Child(children.handle_a_batch_and_stand_still, *ids) as child:
        child.wait_to_hear("handled")
    assert not LedgerEntry.objects.exists()
    assert not ProcessedMessage.objects.exists()


def test_killed_in_a_call_to_another_system_its_outcome_is_unknown(database):
    message = received()
    with Child(children.call_and_stand_still, str(message.id), "600") as child:
        child.wait_to_hear(f"called with {message.id}")
    assert ExternalCall.objects.get().state == CallState.RESERVED
    with context(consumer="payments"), pytest.raises(CallInProgress):
        once_outside(message, pytest.fail)


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_call_that_was_killed_is_looked_up_when_its_lease_is_over(database, took_effect):
    message = received()
    with Child(children.call_and_stand_still, str(message.id), "0.2") as child:
        child.wait_to_hear(f"called with {message.id}")
    wait_until(ExternalCall.objects.unresolved().exists, "the lease is over")
    asked: list[str] = []
    calls: list[str] = []

    def look_up(key: str) -> Found | NotMade:
        asked.append(key)
        return Found("paid") if took_effect else NOT_MADE

    def call(key: str) -> str:
        calls.append(key)
        return "paid"

    with context(consumer="payments"):
        assert once_outside(message, call, look_up=look_up) == "paid"
    assert asked == [str(message.id)]
    assert calls == ([] if took_effect else [str(message.id)])


def test_a_call_that_was_killed_is_not_made_again_by_guess(database):
    message = received()
    with Child(children.call_and_stand_still, str(message.id), "0.2") as child:
        child.wait_to_hear(f"called with {message.id}")
    wait_until(ExternalCall.objects.unresolved().exists, "the lease is over")
    with context(consumer="payments"), pytest.raises(OutcomeUnknown):
        once_outside(message, pytest.fail)


def test_killed_in_a_view_the_request_had_no_effect_and_may_be_made_again(database):
    with Child(children.order_and_stand_still, "0.2") as child:
        child.wait_to_hear("ordered")
    assert not LedgerEntry.objects.exists()
    assert StoredResponse.objects.get().status_code is None
    view = idempotent_request(children.order)
    wait_until(
        lambda: view(children.order_request()).status_code == 201, "the lease is over", every=0.1
    )
    assert view(children.order_request())[REPLAYED] == "true"
    assert LedgerEntry.objects.count() == 1


def test_workers_killed_at_random_count_every_message_once(database):
    Balance.objects.create(account="sales", amount=0)
    ids = [str(uuid4()) for _ in range(300)]
    rng = random.Random(4711)
    for _ in range(4):
        orders = [rng.sample(ids, len(ids)) for _ in range(2)]
        with (
            Child(children.process_all, *orders[0]) as one,
            Child(children.process_all, *orders[1]) as other,
        ):
            for child in (one, other):
                child.wait_to_hear("started")
            time.sleep(rng.uniform(0, 0.15))  # anywhere in the work
    consumer = Consumer(name="ledger", handler=children.add)
    happened = [process_once(consumer, received(id=UUID(each))) for each in ids]
    assert Balance.objects.get().amount == len(ids)
    assert ProcessedMessage.objects.count() == len(ids)
    assert Processed.DUPLICATE in happened  # the killed workers had got somewhere
