"""The state of the table and of the relays, read when Prometheus asks.

A look costs at most ten small statements. Several scrapes within ``max_age`` share one, and where the
database does not answer the other metrics of the process are served all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from django_outbox.conf import outbox_settings
from django_outbox.databases import outbox_alias
from django_outbox.databases.borrowing import borrowed_connection
from django_outbox.operations.stats import Stats, collect_stats

logger = logging.getLogger(__name__)

#: Seconds for which an answer that another scrape waits for too long may stand in.
_STALE: Final = 60.0


class OutboxCollector(Collector):
    """Register it in any registry: ``REGISTRY.register(OutboxCollector())``.

    ``database``: the alias, by default the one that is written to. ``max_age``: seconds during which
    an answer is given again.
    """

    def __init__(self, database: str | None = None, max_age: float = 10.0) -> None:
        self._database = database
        self._max_age = max_age
        self._lock = threading.Lock()
        self._last: Stats | None = None
        self._looked_at = float("-inf")
        self._has_failed = False

    def describe(self) -> list[Metric]:
        """The metrics without values: a registry asks for them when the collector is registered."""
        return list(_Families().all())

    def collect(self) -> Iterator[Metric]:
        """The metrics of now, or of up to ``max_age`` seconds ago."""
        stats = self._stats()
        families = _Families()
        families.up.add_metric([], 0.0 if stats is None else 1.0)
        if stats is None:
            yield families.up
            return
        for state, count in stats.counts.items():
            families.messages.add_metric([state], count.number)
        oldest = stats.oldest_due.total_seconds() if stats.oldest_due else 0.0
        families.oldest_due.add_metric([], oldest)
        alive = [relay for relay in stats.relays if relay.is_alive]
        families.relays.add_metric([], len(alive))
        for alias in outbox_settings().publishers:
            down = sum(alias in relay.open_breakers for relay in alive)
            families.breakers.add_metric([alias], down)
        yield from families.all()

    def _stats(self) -> Stats | None:
        if not self._lock.acquire(blocking=False):
            # Another scrape waits for the database; one of them is enough.
            return self._last if monotonic() - self._looked_at < _STALE else None
        try:
            if monotonic() - self._looked_at >= self._max_age:
                self._last = self._look()
                self._looked_at = monotonic()
            return self._last
        finally:
            self._lock.release()

    def _look(self) -> Stats | None:
        try:
            alias = self._database or outbox_alias()
            with borrowed_connection(alias):
                stats = collect_stats(database=alias)
        except Exception as error:  # whatever it is, /metrics goes on
            if not self._has_failed:
                logger.warning(
                    "The outbox cannot be looked at for its metrics: %s.",
                    type(error).__name__,
                    extra={"event": "metrics_failed", "error": type(error).__name__},
                )
            self._has_failed = True
            return None
        self._has_failed = False
        return stats


class _Families:
    """One of each metric, without values."""

    def __init__(self) -> None:
        self.up = GaugeMetricFamily(
            "django_outbox_database_up", "1 where the outbox's tables could be read."
        )
        self.messages = GaugeMetricFamily(
            "django_outbox_messages",
            "Messages in the table by state; large numbers are estimates.",
            labels=["state"],
        )
        self.oldest_due = GaugeMetricFamily(
            "django_outbox_oldest_due_seconds",
            "How long the message that waits longest has been due; 0 where none is.",
        )
        self.relays = GaugeMetricFamily(
            "django_outbox_relays_alive", "Relays seen within the last minute."
        )
        self.breakers = GaugeMetricFamily(
            "django_outbox_relay_breakers_open",
            "Living relays that find the publisher's broker down.",
            labels=["publisher"],
        )

    def all(self) -> tuple[Metric, ...]:
        return (self.up, self.messages, self.oldest_due, self.relays, self.breakers)
