from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.backoff import retry_delay
from django_outbox.consumers.verdicts import (
    MAX_REASON,
    Ack,
    DeadLetter,
    Failed,
    Failure,
    Processed,
    RetryLater,
    verdict,
)
from django_outbox.policies import RetryPolicy

POLICY = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(minutes=5), max_attempts=3)
HOPELESS = [
    Failure.REJECTED,
    Failure.MALFORMED,
    Failure.UNKNOWN_TOPIC,
    Failure.UNKNOWN_VERSION,
    Failure.INVALID,
]


@pytest.mark.parametrize("processed", Processed)
def test_whatever_was_processed_is_acknowledged(processed):
    assert verdict(processed, 99, POLICY) == Ack(processed)


@pytest.mark.parametrize("failure", HOPELESS)
def test_what_no_retry_helps_is_set_aside_at_the_first_attempt(failure):
    assert verdict(Failed(failure, "why"), 1, POLICY) == DeadLetter("why")


def test_a_handler_that_raises_is_tried_up_to_the_limit():
    failed = Failed(Failure.RAISED, "ValueError")
    decided = [verdict(failed, attempt, POLICY) for attempt in (1, 2, 3)]
    assert [type(each) for each in decided] == [RetryLater, RetryLater, DeadLetter]
    assert decided[0].charged
    assert decided[2] == DeadLetter("ValueError, attempt 3 of 3")


def test_a_limit_that_was_lowered_below_the_attempt_still_ends():
    assert isinstance(verdict(Failed(Failure.RAISED, "x"), 50, POLICY), DeadLetter)


def test_an_outage_is_never_charged_to_the_message():
    decided = verdict(Failed(Failure.UNAVAILABLE, "away"), 1000, POLICY)
    assert isinstance(decided, RetryLater)
    assert not decided.charged


def test_an_outage_waits_longer_than_a_first_failure():
    longest = random.Random()
    longest.uniform = lambda low, high: high  # type: ignore[method-assign]
    outage = verdict(Failed(Failure.UNAVAILABLE, "away"), 1, POLICY, longest)
    first = verdict(Failed(Failure.RAISED, "x"), 1, POLICY, longest)
    assert outage.delay > first.delay


def test_a_handler_that_postpones_gets_the_delay_it_asked_for():
    failed = Failed(Failure.POSTPONED, "too early", timedelta(seconds=42))
    assert verdict(failed, 7, POLICY) == RetryLater(
        timedelta(seconds=42), "too early", charged=False
    )


@pytest.mark.parametrize("failure", Failure)
def test_a_reason_fits_a_header(failure):
    decided = verdict(Failed(failure, "x" * 1000), 1, POLICY)
    assert len(decided.reason) <= MAX_REASON


@given(st.integers(min_value=-5, max_value=2**70))
def test_any_number_of_attempts_has_a_delay_within_the_cap(attempts):
    assert timedelta(0) <= retry_delay(attempts, POLICY) <= POLICY.cap


def test_delays_are_spread_and_grow():
    ceilings = [max(retry_delay(attempt, POLICY) for _ in range(300)) for attempt in (1, 3, 6)]
    assert ceilings == sorted(ceilings)
    assert len({retry_delay(3, POLICY) for _ in range(20)}) > 1
