"""How long an idle relay sleeps, and what wakes it: the clock, a scheduled row, or a new one."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from django_outbox.databases.base import WorkListener
from django_outbox.relay.shutdown import Stop

_random = random.SystemRandom()
#: Seconds of sleep from which on it pays to ask when the next scheduled row is due.
_WORTH_A_LOOK = 1.0


class Wakeup:
    """Polls between the two intervals, longer while nothing comes; listens where it is given an ear."""

    def __init__(
        self,
        poll_interval: tuple[timedelta, timedelta],
        listener: WorkListener | None = None,
        rng: random.Random = _random,
    ) -> None:
        self._shortest, self._longest = (each.total_seconds() for each in poll_interval)
        self._listener = listener
        self._rng = rng
        self._interval = self._shortest
        self._looked_in_vain = False

    def had_work(self) -> None:
        """There was something to do: poll soon again."""
        self._interval = self._shortest
        self._looked_in_vain = False

    def next_wait(self) -> float:
        """Seconds to the next poll: doubled from turn to turn, and jittered, so that relays spread."""
        interval = self._interval
        self._interval = min(interval * 2, self._longest)
        return self._rng.uniform(max(self._shortest, interval / 2), interval)

    def sleep(
        self,
        stop: Stop,
        seconds_until_due: Callable[[], float | None],
        at_most: float | None = None,
    ) -> None:
        """Sleep until something may be due, until the stop, or for so many seconds.

        ``seconds_until_due`` looks once more: 0 for work now, None where nothing is scheduled. It is
        asked after the listener has announced the sleep, so that no row falls between the two.
        """
        interval = self.next_wait()
        announced = self._listener is not None and self._listener.prepare()
        # The slow poll stays as the floor.
        wait = self._longest if announced else interval
        due = seconds_until_due() if announced or wait > _WORTH_A_LOOK else None
        if due is not None and due <= 0 and not self._looked_in_vain:
            self._looked_in_vain = True
            if self._listener is not None:
                self._listener.cancel()
            return
        # What is due and was not claimed at once is locked by somebody, and worth no race.
        self._looked_in_vain = due is not None and due <= 0
        if due is not None:
            wait = min(wait, due if due > 0 else interval)
        if at_most is not None:
            wait = min(wait, at_most)
        if self._listener is None:
            stop.wait(wait)
        else:
            self._listener.wait(wait, stop.fileno())

    def close(self) -> None:
        """Let go of the listener."""
        if self._listener is not None:
            self._listener.close()
