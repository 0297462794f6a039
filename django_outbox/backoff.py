"""How long to wait before the next try, on both sides of the broker. Pure."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_outbox.policies import RetryPolicy

_random = random.SystemRandom()


def retry_delay(attempts: int, policy: RetryPolicy, rng: random.Random = _random) -> timedelta:
    """How long to wait after the given number of failed attempts.

    Evenly random between nothing and an exponential ceiling ("full jitter", Brooker 2015). The
    exponent is clamped: any number of attempts is safe.
    """
    base, cap = policy.base.total_seconds(), policy.cap.total_seconds()
    exponent = min(max(attempts, 1) - 1, 30)
    return timedelta(seconds=rng.uniform(0, min(cap, base * 2**exponent)))
