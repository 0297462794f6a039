"""A breaker for one broker: closed while it answers, open while it does not. Pure: the clock is an argument.

While it is open nothing is claimed for the broker; probes ask it with growing, jittered waits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

_random = random.SystemRandom()
_FIRST_WAIT = 0.5


@dataclass(slots=True)
class Breaker:
    """The state of one broker. Times are monotonic seconds."""

    cap: timedelta
    """The longest wait between two probes."""
    rng: random.Random = field(default=_random, repr=False)
    opened_at: float | None = None
    next_probe: float = 0.0
    failed_probes: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the broker is taken to be down."""
        return self.opened_at is not None

    def trip(self, now: float) -> bool:
        """The broker was found down. True where the breaker opens with it."""
        if self.opened_at is not None:
            return False
        self.opened_at, self.failed_probes = now, 0
        self._wait(now)
        return True

    def probe_is_due(self, now: float) -> bool:
        """Whether the broker should be asked now."""
        return self.opened_at is not None and now >= self.next_probe

    def probed(self, answered: bool, now: float) -> timedelta | None:
        """A probe came back. Closes the breaker where the broker answered: how long it was open."""
        if self.opened_at is None:
            return None
        if answered:
            open_for = timedelta(seconds=now - self.opened_at)
            self.opened_at = None
            return open_for
        self.failed_probes += 1
        self._wait(now)
        return None

    def _wait(self, now: float) -> None:
        ceiling = min(self.cap.total_seconds(), _FIRST_WAIT * 2 ** min(self.failed_probes, 16))
        # At least half of it: an outage is no reason to hammer on the broker.
        self.next_probe = now + self.rng.uniform(ceiling / 2, ceiling)
