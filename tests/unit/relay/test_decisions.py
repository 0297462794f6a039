import random
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.backoff import retry_delay
from django_outbox.batches import Dead, Published, Released, Retry
from django_outbox.policies import RetryPolicy
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.relay.breaker import Breaker
from django_outbox.relay.verdicts import is_exhausted, verdict

POLICY = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(minutes=5), max_attempts=3)


def judged(outcome, attempts=1):
    return verdict(Receipt(uuid4(), outcome, "a reason"), attempts, POLICY)


def test_a_confirmed_message_is_published_at_whatever_attempt():
    assert judged(Outcome.CONFIRMED) == Published()
    assert judged(Outcome.CONFIRMED, attempts=99) == Published()


@pytest.mark.parametrize("outcome", [Outcome.NOT_SENT, Outcome.BROKER_DOWN])
@pytest.mark.parametrize("attempts", [1, 3, 99])
def test_what_is_no_fault_of_the_message_never_makes_it_dead(outcome, attempts):
    assert judged(outcome, attempts) == Released()


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.FAILED])
def test_a_failed_message_is_tried_again_to_the_limit_and_then_dead(outcome):
    assert [type(judged(outcome, attempts)) for attempts in (1, 2, 3)] == [Retry, Retry, Dead]
    assert judged(outcome, 3).reason == "a reason"


def test_a_message_past_its_attempts_is_exhausted():
    assert [is_exhausted(attempts, POLICY) for attempts in (3, 4)] == [False, True]


@given(st.integers(0, 10**9))
def test_the_wait_is_bounded_for_any_number_of_attempts(attempts):
    assert timedelta(0) <= retry_delay(attempts, POLICY) <= POLICY.cap


def test_the_ceiling_of_the_wait_doubles_up_to_the_cap():
    class Highest(random.Random):
        def uniform(self, a, b):
            return b

    waits = [retry_delay(n, POLICY, Highest()).total_seconds() for n in (1, 2, 3, 4, 20)]
    assert waits == [1, 2, 4, 8, 300]


def test_a_breaker_opens_once_probes_less_and_less_often_and_closes_once():
    breaker = Breaker(timedelta(seconds=30))
    assert not breaker.is_open
    assert breaker.trip(100.0, 99.0)
    assert not breaker.trip(100.1, 99.0), "it is open already"
    now, waits = 100.0, []
    for _ in range(12):
        assert not breaker.probe_is_due(breaker.next_probe - 0.001)
        waits.append(breaker.next_probe - now)
        now = breaker.next_probe
        assert breaker.probe_is_due(now)
        assert breaker.probed(False, now) is None
    assert waits[0] <= 0.5
    assert 15 <= waits[-1] <= 30
    assert breaker.probed(True, now) == timedelta(seconds=now - 100.0)
    assert not breaker.is_open
    assert breaker.probed(True, now) is None, "it closes once"
    breaker.worked()
    assert breaker.trip(now, now), "and can open again, with short waits"
    assert breaker.next_probe - now <= 0.5


def test_a_broker_that_answers_probes_and_takes_nothing_is_asked_less_and_less_often():
    breaker = Breaker(timedelta(seconds=30))
    now = 100.0
    for _ in range(12):
        assert breaker.trip(now, now)
        now = breaker.next_probe
        assert breaker.probed(True, now) is not None
    assert breaker.trip(now, now)
    assert breaker.next_probe - now >= 15


def test_late_news_of_an_outage_that_is_over_does_not_open_the_breaker_again():
    breaker = Breaker(timedelta(seconds=30))
    breaker.trip(100.0, 99.0)
    breaker.probed(True, 101.0)
    assert not breaker.trip(102.0, 99.5)
    assert breaker.trip(103.0, 101.5)
