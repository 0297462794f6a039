from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import TestCase

from django_outbox.consumers import Consumer, Mode, Processed, process_once
from django_outbox.consumers.external import NOT_MADE, Found, once_outside, same_key_again
from django_outbox.context import context
from django_outbox.exceptions import (
    CallInProgress,
    CallRefused,
    InTransaction,
    OutcomeUnknown,
)
from django_outbox.messages import Message
from django_outbox.models import CallState, ExternalCall
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.support.threads import Worker, wait_for
from tests.testapp.models import LedgerEntry

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class Timeout(Exception):
    pass


class PaymentService:
    """Another system: takes payments, and remembers the keys it was sent."""

    def __init__(self, *, honours_keys: bool = False) -> None:
        self.payments: list[str] = []
        self.keys: list[str] = []
        self._honours_keys = honours_keys

    def pay(self, key: str) -> dict[str, Any]:
        if not (self._honours_keys and key in self.keys):
            self.payments.append(key)
        self.keys.append(key)
        return {"payment": self.payments.index(key) + 1}

    def pay_and_lose_the_answer(self, key: str) -> dict[str, Any]:
        self.pay(key)
        raise Timeout

    def never_reached(self, key: str) -> dict[str, Any]:
        raise Timeout

    def refuse(self, key: str) -> dict[str, Any]:
        raise CallRefused

    def find(self, key: str) -> Any:
        if key in self.payments:
            return Found({"payment": self.payments.index(key) + 1})
        return NOT_MADE


def the_call() -> ExternalCall:
    return ExternalCall.objects.get()


def lapse() -> None:
    """The worker that holds the call has died, long ago."""
    ExternalCall.objects.update(lease_expires_at="2020-01-01T00:00:00Z")


def test_the_call_is_made_once_and_its_outcome_given_to_every_delivery(database):
    service = PaymentService()
    message = received()
    outcomes = [once_outside(message, service.pay) for _ in range(3)]
    assert outcomes == [{"payment": 1}] * 3
    assert len(service.payments) == 1
    assert (the_call().state, the_call().attempts) == (CallState.SUCCEEDED, 1)


def test_the_key_is_the_message_id(database):
    service = PaymentService()
    message = received()
    once_outside(message, service.pay)
    assert service.keys == [str(message.id)]


def test_several_calls_for_one_message_have_keys_of_their_own(database):
    service = PaymentService()
    message = received()
    once_outside(message, service.pay, name="charge")
    once_outside(message, service.pay, name="notify")
    once_outside(message, service.pay, name="charge")
    assert len(set(service.keys)) == 2
    for key in service.keys:
        assert str(UUID(key)) == key


def test_the_reservation_is_committed_before_the_call_is_made(database):
    states: list[tuple[str, bool]] = []

    def look_from_outside(key: str) -> None:
        def look() -> tuple[str, bool]:
            call = ExternalCall.objects.get()
            return call.state, call.lease_expires_at is not None

        states.append(Worker(look).result())

    once_outside(received(), look_from_outside)
    assert states == [(CallState.RESERVED, True)]


def test_the_outcome_is_what_json_makes_of_it_the_first_time_too(database):
    message = received()
    given = once_outside(message, lambda key: {"at": timedelta(hours=1), "ids": (1, 2)})
    assert given == {"at": "P0DT01H00M00S", "ids": [1, 2]}
    assert once_outside(message, lambda key: None) == given


def test_a_call_may_return_nothing(database):
    message = received()
    calls: list[str] = []
    for _ in range(2):
        assert once_outside(message, calls.append) is None
    assert len(calls) == 1


def test_a_refused_call_had_no_effect_and_is_made_again(database):
    service = PaymentService()
    message = received()
    with pytest.raises(CallRefused):
        once_outside(message, service.refuse)
    assert the_call().state == CallState.FAILED
    assert once_outside(message, service.pay) == {"payment": 1}
    assert (the_call().state, the_call().attempts) == (CallState.SUCCEEDED, 2)


def test_a_lost_answer_is_looked_up_and_not_paid_twice(database):
    service = PaymentService()
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.pay_and_lose_the_answer, look_up=service.find)
    call = the_call()
    assert (call.state, call.lease_token) == (CallState.UNKNOWN, None)
    assert call.last_error.endswith("Timeout")
    assert once_outside(message, service.pay, look_up=service.find) == {"payment": 1}
    assert len(service.payments) == 1
    assert the_call().state == CallState.SUCCEEDED


def test_a_call_that_did_not_get_through_is_made_after_the_look_up(database):
    service = PaymentService()
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.never_reached, look_up=service.find)
    assert once_outside(message, service.pay, look_up=service.find) == {"payment": 1}
    assert the_call().attempts == 2


def test_without_a_look_up_an_unknown_outcome_is_a_persons_business(database):
    service = PaymentService()
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.pay_and_lose_the_answer)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            once_outside(message, service.pay)
    assert len(service.payments) == 1
    assert the_call().state == CallState.UNKNOWN
    assert list(ExternalCall.objects.unresolved()) == [the_call()]


def test_a_system_that_honours_the_key_can_simply_be_called_again(database):
    service = PaymentService(honours_keys=True)
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.pay_and_lose_the_answer, look_up=same_key_again)
    assert once_outside(message, service.pay, look_up=same_key_again) == {"payment": 1}
    assert len(service.payments) == 1
    assert len(service.keys) == 2


@pytest.mark.parametrize("error", [Timeout, CallRefused])
def test_a_look_up_that_fails_leaves_the_outcome_unknown(database, error):
    service = PaymentService()
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.pay_and_lose_the_answer)

    def look_up(key: str) -> Any:
        raise error

    with pytest.raises(error):
        once_outside(message, service.pay, look_up=look_up)
    assert the_call().state == CallState.UNKNOWN
    assert len(service.payments) == 1


@pytest.mark.parametrize("answer", [None, {"payment": 1}, False])
def test_a_look_up_that_answers_something_else_is_no_reason_to_call(database, answer):
    service = PaymentService()
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.pay_and_lose_the_answer)
    with pytest.raises(TypeError, match="NOT_MADE"):
        once_outside(message, service.pay, look_up=lambda key: answer)
    assert len(service.payments) == 1
    assert the_call().state == CallState.UNKNOWN


def test_a_call_that_is_under_way_is_left_alone(database):
    service = PaymentService()
    message = received()
    entered, let_go = threading.Event(), threading.Event()

    def slow(key: str) -> Any:
        entered.set()
        wait_for(let_go, "the call is let go")
        return service.pay(key)

    first = Worker(once_outside, message, slow)
    wait_for(entered, "the call is under way")
    with pytest.raises(CallInProgress) as refused:
        once_outside(message, service.pay, look_up=service.find)
    assert timedelta(0) < refused.value.delay <= timedelta(minutes=5)
    let_go.set()
    assert first.result() == {"payment": 1}
    assert once_outside(message, service.pay) == {"payment": 1}
    assert len(service.payments) == 1


def test_a_call_that_was_abandoned_is_looked_up(database):
    service = PaymentService()
    message = received()

    def die(key: str) -> Any:
        service.pay(key)
        raise SystemExit

    with pytest.raises(SystemExit):
        once_outside(message, die)
    assert the_call().state == CallState.RESERVED
    with pytest.raises(CallInProgress):
        once_outside(message, service.pay, look_up=service.find)
    lapse()
    assert list(ExternalCall.objects.unresolved()) == [the_call()]
    assert once_outside(message, service.pay, look_up=service.find) == {"payment": 1}
    assert len(service.payments) == 1


def test_an_abandoned_call_without_a_look_up_is_unknown(database):
    message = received()

    def die(key: str) -> Any:
        raise SystemExit

    with pytest.raises(SystemExit):
        once_outside(message, die)
    lapse()
    with pytest.raises(OutcomeUnknown):
        once_outside(message, die)
    assert the_call().state == CallState.UNKNOWN


def test_a_worker_that_comes_back_late_still_reports_its_success(database):
    service = PaymentService()
    message = received()

    def too_slow(key: str) -> Any:
        outcome = service.pay(key)
        lapse()
        with pytest.raises(OutcomeUnknown):
            Worker(once_outside, message, service.pay).result()
        return outcome

    assert once_outside(message, too_slow) == {"payment": 1}
    assert the_call().state == CallState.SUCCEEDED


def test_a_worker_that_comes_back_late_cannot_undo_a_success(database):
    service = PaymentService()
    message = received()

    def too_slow(key: str) -> Any:
        service.pay(key)
        lapse()
        Worker(lambda: once_outside(message, service.pay, look_up=service.find)).result()
        raise Timeout

    with pytest.raises(Timeout):
        once_outside(message, too_slow)
    assert the_call().state == CallState.SUCCEEDED


def test_a_worker_that_lost_its_hold_while_looking_up_does_not_call(database):
    service = PaymentService()
    message = received()
    with pytest.raises(Timeout):
        once_outside(message, service.never_reached)

    def slow_look_up(key: str) -> Any:
        lapse()
        Worker(lambda: once_outside(message, service.pay, look_up=service.find)).result()
        return NOT_MADE

    with pytest.raises(CallInProgress):
        once_outside(message, service.pay, look_up=slow_look_up)
    assert len(service.payments) == 1


@pytest.mark.parametrize("outcome", [object(), float("nan"), {1j: 1}])
def test_an_outcome_that_cannot_be_stored_is_unknown_and_not_lost(database, outcome):
    message = received()
    with pytest.raises(TypeError, match="not JSON"):
        once_outside(message, lambda key: outcome)
    assert the_call().state == CallState.UNKNOWN


@pytest.mark.parametrize("wrong", [{"name": "x" * 101}, {"lease": timedelta(0)}])
def test_what_would_undo_the_promise_is_refused_and_nothing_called(database, wrong):
    service = PaymentService()
    with pytest.raises(ValueError, match=next(iter(wrong))):
        once_outside(received(), service.pay, **wrong)
    assert service.payments == []


def test_inside_a_transaction_nothing_is_called(database):
    service = PaymentService()
    with pytest.raises(InTransaction, match="mode='seen'"), transaction.atomic():
        once_outside(received(), service.pay)
    assert service.payments == []
    assert not ExternalCall.objects.exists()


def test_a_transactional_consumer_cannot_call_outside(database):
    service = PaymentService()
    declared = Consumer(name="payments", handler=lambda m: once_outside(m, service.pay))
    with pytest.raises(InTransaction):
        process_once(declared, received())
    assert service.payments == []


def test_a_consumer_in_the_mode_seen_calls_once_and_books_once(database):
    service = PaymentService()
    died: list[bool] = []

    def book(message: Message, outcome: Any) -> None:
        LedgerEntry.objects.create(account="paid", reference=str(outcome["payment"]))

    def charge(message: Message) -> None:
        outcome = once_outside(message, service.pay, look_up=service.find)
        process_once("payments.book", message, lambda m: book(m, outcome))
        if not died:
            died.append(True)
            raise Timeout

    declared = Consumer(name="payments", mode=Mode.SEEN, handler=charge)
    message = received()
    with pytest.raises(Timeout):
        process_once(declared, message)
    assert process_once(declared, message) is Processed.HANDLED
    assert process_once(declared, message) is Processed.DUPLICATE
    assert (len(service.payments), LedgerEntry.objects.count()) == (1, 1)
    assert the_call().consumer == "payments"


def test_consumers_call_for_themselves(database):
    service = PaymentService()
    message = received()
    for name in ("payments", "audit"):
        with context(consumer=name):
            once_outside(message, service.pay)
    assert ExternalCall.objects.count() == 2


def test_it_works_inside_the_transaction_of_a_test_case(database):
    class Inside(TestCase):
        databases = {"default"}

        def test(self) -> None:
            service = PaymentService()
            message = received()
            once_outside(message, service.pay)
            once_outside(message, service.pay)
            assert len(service.payments) == 1

    result = Inside("test").run()
    assert result is not None
    assert result.wasSuccessful(), result.errors + result.failures


def test_only_settled_calls_grow_old(database):
    service = PaymentService()
    once_outside(received(), service.pay)
    with pytest.raises(Timeout):
        once_outside(received(), service.never_reached)
    ExternalCall.objects.update(updated_at="2020-01-01T00:00:00Z")
    (old,) = ExternalCall.objects.older_than(timedelta(days=7))
    assert old.state == CallState.SUCCEEDED
