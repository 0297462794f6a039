"""What is under way: batches on their way to a broker, each publisher's part on its own.

A publisher that is slow fills its own places and nobody else's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from django_outbox.batches import Batch
from django_outbox.publishers.base import Publisher
from django_outbox.relay.crew import Crew
from django_outbox.relay.publish import BatchPublishing, Receipts

#: Batches under way to one publisher: while two wait for their confirms, the third is with the database.
DEPTH = 3


class Flight:
    """One publisher's part of a batch. ``receipts`` grow with every round that comes back."""

    def __init__(self, alias: str | None, batch: Batch) -> None:
        self.alias = alias
        """None: no route leads to any publisher."""
        self.batch = batch
        self.receipts: Receipts = {}
        self.is_over = False


class Flights:
    """The flights of one relay. Used by the relay's own thread only."""

    def __init__(
        self, publishing: BatchPublishing, publishers: Mapping[str, Publisher], depth: int = DEPTH
    ) -> None:
        self._publishing = publishing
        self._publishers = publishers
        self._depth = depth
        self._under_way: list[Flight] = []
        self._landed = threading.Event()
        self._crew = Crew("outbox publishing")

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def full(self) -> set[str]:
        """The publishers that have as much under way as they may."""
        aliases = [flight.alias for flight in self._under_way if flight.alias is not None]
        return {alias for alias in aliases if aliases.count(alias) >= self._depth}

    def send(self, batch: Batch) -> None:
        """Send each publisher's part off: in a thread, or at once where it wants the caller's own."""
        inline = []
        for alias, claimed in self._publishing.by_publisher(batch.claimed).items():
            flight = Flight(alias, replace(batch, claimed=tuple(claimed)))
            self._under_way.append(flight)
            if alias is not None and self._publishers[alias].supports_concurrent_publish:
                self._crew.do(partial(self._publish, flight))
            else:
                inline.append(flight)
        for flight in inline:
            self._publish(flight)

    def take_landed(self, wait: float) -> list[Flight]:
        """Those that have all their receipts; waits so many seconds for the first one."""
        self._landed.wait(wait)
        self._landed.clear()
        landed = [flight for flight in self._under_way if flight.is_over]
        self._under_way = [flight for flight in self._under_way if flight not in landed]
        return landed

    def take_all(self) -> list[Flight]:
        """Whatever is under way, landed or not."""
        under_way, self._under_way = self._under_way, []
        return under_way

    def wait(self, seconds: float) -> bool:
        """Wait until one lands, but no longer than that. True: one has landed."""
        return self._landed.wait(seconds)

    def _publish(self, flight: Flight) -> None:
        try:
            self._publishing.publish(flight.batch, flight.alias, flight.receipts)
        finally:
            flight.is_over = True
            self._landed.set()
