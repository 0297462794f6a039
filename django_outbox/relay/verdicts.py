"""Receipt + attempts + policy -> Verdict: what a publish means for the row. Pure."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, assert_never

from django_outbox.backoff import retry_delay
from django_outbox.batches import Dead, Published, Released, Retry, Verdict
from django_outbox.publishers.base import Outcome, Receipt

if TYPE_CHECKING:
    from django_outbox.policies import RetryPolicy

_random = random.SystemRandom()


def verdict(
    receipt: Receipt, attempts: int, policy: RetryPolicy, rng: random.Random = _random
) -> Verdict:
    """What becomes of the row. ``attempts`` counts from 1, this one included."""
    match receipt.outcome:
        case Outcome.CONFIRMED:
            return Published()
        case Outcome.NOT_SENT | Outcome.BROKER_DOWN:
            return Released()
        case Outcome.REJECTED | Outcome.FAILED if attempts >= policy.max_attempts:
            return Dead(receipt.reason, receipt.kind)
        case Outcome.REJECTED | Outcome.FAILED:
            return Retry(retry_delay(attempts, policy, rng), receipt.reason, receipt.kind)
        case _ as never:
            assert_never(never)


def is_exhausted(attempts: int, policy: RetryPolicy) -> bool:
    """Whether a claimed row is past its attempts: whoever tried it last never came back to say so."""
    return attempts > policy.max_attempts


def exhausted(attempts: int) -> Dead:
    """The verdict on a row that took its relay along at every attempt."""
    reason = f"never settled in {attempts - 1} attempts: each relay died or lost its lease"
    return Dead(reason, cause="abandoned")
