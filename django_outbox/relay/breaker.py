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
    closed_at: float | None = None
    next_probe: float = 0.0
    probes_in_vain: int = 0
    """Probes since the broker last took a message."""

    @property
    def is_open(self) -> bool:
        """Whether the broker is taken to be down."""
        return self.opened_at is not None

    def trip(self, now: float, began: float) -> bool:
        """What was begun then has found the broker down. True where the breaker opens with it."""
        if self.opened_at is not None:
            return False
        if self.closed_at is not None and began < self.closed_at:
            return False  # late news of an outage that is over
        self.opened_at = now
        self._wait(now)
        return True

    def probe_is_due(self, now: float) -> bool:
        """Whether the broker should be asked now."""
        return self.opened_at is not None and now >= self.next_probe

    def probed(self, answered: bool, now: float) -> timedelta | None:
        """A probe came back. Closes the breaker where the broker answered: how long it was open."""
        if self.opened_at is None:
            return None
        # Counted either way: a broker that answers probes and takes no messages would flap.
        self.probes_in_vain += 1
        if not answered:
            self._wait(now)
            return None
        open_for = timedelta(seconds=now - self.opened_at)
        self.opened_at, self.closed_at = None, now
        return open_for

    def worked(self) -> None:
        """The broker has taken a message: should it go down again, the waits are short again."""
        self.probes_in_vain = 0

    def _wait(self, now: float) -> None:
        ceiling = min(self.cap.total_seconds(), _FIRST_WAIT * 2 ** min(self.probes_in_vain, 16))
        # At least half of it: an outage is no reason to hammer on the broker.
        self.next_probe = now + self.rng.uniform(ceiling / 2, ceiling)
