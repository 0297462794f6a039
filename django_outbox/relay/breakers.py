"""One breaker a publisher: which topics may be claimed now, and when to ask a silent broker again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

from django_outbox import signals
from django_outbox.publishers.base import Outcome, Publisher, Receipt
from django_outbox.relay.breaker import Breaker
from django_outbox.routing import Routes
from django_outbox.topics import EVERY_TOPIC, TopicSelection

logger = logging.getLogger(__name__)

#: Seconds between two looks at the answer to a probe.
_GLANCE = 0.2


@dataclass(frozen=True, slots=True)
class Outage:
    """A broker that takes no messages."""

    reason: str
    since: datetime
    """By this process's clock: for people."""


class Breakers:
    """The state of every broker that routes lead to. Used by the relay's own thread only."""

    def __init__(self, routes: Routes, publishers: Mapping[str, Publisher], cap: timedelta) -> None:
        self._routes = routes
        self._publishers = publishers
        self._breakers = {alias: Breaker(cap) for alias in publishers}
        self._probes: dict[str, _Probe] = {}
        self._outages: dict[str, Outage] = {}

    @property
    def outages(self) -> dict[str, Outage]:
        """The publishers whose breaker is open, and why."""
        return dict(self._outages)

    @property
    def is_any_open(self) -> bool:
        """Whether some broker is taken to be down."""
        return any(each.is_open for each in self._breakers.values())

    def reachable(self, full: Collection[str] = ()) -> TopicSelection:
        """The topics whose broker is not known to be down, and whose publisher is not full."""
        ready = [
            alias
            for alias, breaker in self._breakers.items()
            if not breaker.is_open and alias not in full
        ]
        if len(ready) == len(self._breakers):
            return EVERY_TOPIC
        return self._routes.topics_of(ready)

    def look_at(self, alias: str, receipts: Collection[Receipt], began: float) -> None:
        """Open the breaker where a publish that was begun then found the broker down."""
        breaker = self._breakers[alias]
        if any(receipt.outcome is Outcome.CONFIRMED for receipt in receipts):
            breaker.worked()
        down = next((r for r in receipts if r.outcome is Outcome.BROKER_DOWN), None)
        if down is not None and breaker.trip(monotonic(), began):
            self._outages[alias] = Outage(down.reason, datetime.now(UTC))
            signals.tell_breaker_opened(alias, down.reason)

    def seconds_to_probe(self) -> float | None:
        """Until ``probe`` has something to do; None where all brokers are up."""
        due = [each.next_probe for each in self._breakers.values() if each.is_open]
        if not due:
            return None
        return max(min(due) - monotonic(), _GLANCE)

    def probe(self) -> None:
        """Ask the brokers whose time has come, each in a thread of its own, and hear the answers."""
        for alias, breaker in self._breakers.items():
            asked = self._probes.get(alias)
            if asked is not None:
                if asked.answer is not None:
                    del self._probes[alias]
                    self._hear(alias, breaker, asked.answer)
            elif breaker.probe_is_due(monotonic()):
                self._probes[alias] = _Probe(alias, self._publishers[alias])

    def probe_now(self) -> None:
        """``probe``, waiting for the answers: for callers that do not come back soon."""
        self.probe()
        for asked in list(self._probes.values()):
            asked.wait()
        self.probe()

    def _hear(self, alias: str, breaker: Breaker, answer: str) -> None:
        open_for = breaker.probed(answer == "", monotonic())
        if open_for is not None:
            self._outages.pop(alias, None)
            signals.tell_breaker_closed(alias, open_for)
        else:
            logger.debug(
                "The broker of %r is still down: %s",
                alias,
                answer,
                extra={"event": "breaker_still_open", "publisher": alias, "reason": answer},
            )


class _Probe:
    """One question to a broker; ``answer`` is None until it is there."""

    def __init__(self, alias: str, publisher: Publisher) -> None:
        self.answer: str | None = None
        self._thread = threading.Thread(
            target=self._ask, args=(publisher,), name=f"outbox probe {alias}", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _ask(self, publisher: Publisher) -> None:
        try:
            self.answer = publisher.probe()
        except Exception as error:
            self.answer = f"the probe raised {type(error).__name__}"
