"""One breaker a publisher: which topics may be claimed now, and when to ask a silent broker again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from time import monotonic

from django_outbox import signals
from django_outbox.publishers.base import Outcome, Publisher, Receipt
from django_outbox.relay.breaker import Breaker
from django_outbox.routing import Routes
from django_outbox.topics import EVERY_TOPIC, TopicSelection

logger = logging.getLogger(__name__)


class Breakers:
    """The state of every broker that routes lead to. Used by the relay's own thread only."""

    def __init__(
        self, routes: Routes, publisher_for: Callable[[str], Publisher], cap: timedelta
    ) -> None:
        self._routes = routes
        self._publisher_for = publisher_for
        aliases = {route.publisher for route in routes.routes}
        self._breakers = {alias: Breaker(cap) for alias in sorted(aliases)}
        self._probes: dict[str, _Probe] = {}

    @property
    def are_all_open(self) -> bool:
        """Whether no broker takes messages: there is nothing to claim for."""
        return bool(self._breakers) and all(each.is_open for each in self._breakers.values())

    @property
    def is_any_open(self) -> bool:
        """Whether some broker is taken to be down."""
        return any(each.is_open for each in self._breakers.values())

    def reachable(self) -> TopicSelection:
        """The topics whose broker is not known to be down."""
        if not self.is_any_open:
            return EVERY_TOPIC
        closed = [alias for alias, breaker in self._breakers.items() if not breaker.is_open]
        return self._routes.topics_of(closed)

    def look_at(self, alias: str, receipts: Collection[Receipt]) -> None:
        """Open the breaker where a publish found the broker down. Logged once an outage."""
        down = next((r for r in receipts if r.outcome is Outcome.BROKER_DOWN), None)
        if down is not None and self._breakers[alias].trip(monotonic()):
            signals.tell_breaker_opened(alias, down.reason)

    def seconds_to_probe(self) -> float | None:
        """Until the next broker is asked; None where all are up."""
        due = [each.next_probe for each in self._breakers.values() if each.is_open]
        return max(min(due) - monotonic(), 0.0) if due else None

    def probe(self) -> None:
        """Ask the brokers whose time has come, each in a thread of its own, and hear the answers."""
        for alias, breaker in self._breakers.items():
            asked = self._probes.get(alias)
            if asked is not None:
                if asked.answer is not None:
                    del self._probes[alias]
                    self._hear(alias, breaker, asked.answer)
            elif breaker.probe_is_due(monotonic()):
                self._probes[alias] = _Probe(alias, self._publisher_for)

    def probe_now(self) -> None:
        """``probe``, waiting for the answers: for callers that do not come back soon."""
        self.probe()
        for asked in list(self._probes.values()):
            asked.wait()
        self.probe()

    def _hear(self, alias: str, breaker: Breaker, answer: str) -> None:
        open_for = breaker.probed(answer == "", monotonic())
        if open_for is not None:
            signals.tell_breaker_closed(alias, open_for)
        else:
            logger.debug("The broker of %r is still down: %s", alias, answer)


class _Probe:
    """One question to a broker; ``answer`` is None until it is there."""

    def __init__(self, alias: str, publisher_for: Callable[[str], Publisher]) -> None:
        self.answer: str | None = None
        self._thread = threading.Thread(
            target=self._ask, args=(alias, publisher_for), name=f"outbox probe {alias}", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _ask(self, alias: str, publisher_for: Callable[[str], Publisher]) -> None:
        try:
            self.answer = publisher_for(alias).probe()
        except Exception as error:
            logger.exception("Probing %r failed in an unforeseen way.", alias)
            self.answer = f"the probe raised {type(error).__name__}"
