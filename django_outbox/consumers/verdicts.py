"""What happened to a delivery -> what the transport does with it. Pure: no Django, no broker.

Reasons are short and fit a header: a class name or a sentence of ours, never a value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias, assert_never

from django_outbox.backoff import retry_delay

if TYPE_CHECKING:
    from django_outbox.policies import RetryPolicy

_random = random.SystemRandom()

#: Characters of a reason that travels in a header.
MAX_REASON = 200
#: An outage waits like this many failed attempts: with the default base up to 8 s.
_OUTAGE_ATTEMPTS = 4


class Processed(Enum):
    """What became of one message at one consumer. In every case it is done with."""

    HANDLED = auto()
    """The handler ran and its effect is committed (or will be, with the caller's transaction)."""
    DUPLICATE = auto()
    """It was processed before: nothing was done."""
    STALE = auto()
    """Its aggregate has seen a higher sequence: recorded, and the handler passed over."""


class Failure(Enum):
    """Why a message was not processed."""

    RAISED = auto()
    """The handler raised: the next attempt may succeed."""
    POSTPONED = auto()
    """The handler asked for a later time."""
    UNAVAILABLE = auto()
    """The consumer's database is away: no fault of the message."""
    REJECTED = auto()
    """The handler said that no retry will help."""
    MALFORMED = auto()
    """It cannot be read, or has no usable identity."""
    UNKNOWN_TOPIC = auto()
    """No consumer takes its topic."""
    UNKNOWN_VERSION = auto()
    """Its schema version is not known, and no upcaster leads on from it."""
    INVALID = auto()
    """Its payload breaks its schema."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that was not processed, and why."""

    failure: Failure
    reason: str
    delay: timedelta | None = None
    """Only with POSTPONED: how long the handler wants to wait."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Done with: acknowledge it."""

    processed: Processed


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Deliver it again after the delay."""

    delay: timedelta
    reason: str
    charged: bool = True
    """Whether this delivery counts as an attempt. False: the next one has the same number."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Set it aside with the reason, for a person to look at."""

    reason: str


Verdict: TypeAlias = Ack | RetryLater | DeadLetter


def verdict(
    happened: Processed | Failed,
    attempt: int,
    policy: RetryPolicy,
    rng: random.Random = _random,
) -> Verdict:
    """Decide about one delivery. ``attempt`` counts from 1, this delivery included."""
    if isinstance(happened, Processed):
        return Ack(happened)
    reason = happened.reason[:MAX_REASON]
    match happened.failure:
        case Failure.POSTPONED:
            return RetryLater(happened.delay or policy.base, reason, charged=False)
        case Failure.UNAVAILABLE:
            # The attempt stays the same however long the outage, so the wait cannot grow with it.
            outage = max(attempt, _OUTAGE_ATTEMPTS)
            return RetryLater(retry_delay(outage, policy, rng), reason, charged=False)
        case Failure.RAISED if attempt >= policy.max_attempts:
            return DeadLetter(f"{reason}, attempt {attempt} of {policy.max_attempts}")
        case Failure.RAISED:
            return RetryLater(retry_delay(attempt, policy, rng), reason)
        case (
            Failure.REJECTED
            | Failure.MALFORMED
            | Failure.UNKNOWN_TOPIC
            | Failure.UNKNOWN_VERSION
            | Failure.INVALID
        ):
            return DeadLetter(reason)
        case _ as never:
            assert_never(never)


def verdict_of_all(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on one delivery that several consumers took.

    It comes again until none of them wants it again: those that were done see a duplicate then. It
    is set aside at the end where one of them gave it up.
    """
    again = [each for each in verdicts if isinstance(each, RetryLater)]
    if again:
        charged = [each for each in again if each.charged]
        return max(charged or again, key=lambda each: each.delay)
    given_up = [each for each in verdicts if isinstance(each, DeadLetter)]
    return given_up[0] if given_up else Ack(Processed.HANDLED)
