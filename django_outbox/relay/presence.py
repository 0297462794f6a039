"""A relay says that it is there: one row of its own, written every few seconds, for people and checks.

Nothing is decided by it, and nothing waits for it: where it cannot be written, the relay works on and
tries again the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic

from django.db import Error as DatabaseError

import django_outbox
from django_outbox.databases import Database
from django_outbox.databases.clock import DatabaseNow
from django_outbox.databases.outcomes import LEASED_BY_LENGTH
from django_outbox.models import RelayProcess
from django_outbox.relay.breakers import Outage
from django_outbox.relay.settle import Totals
from django_outbox.topics import TopicSelection

logger = logging.getLogger(__name__)

#: Seconds between two signs of life.
INTERVAL = 10.0
_SAID = (
    "seen_at",
    "stopped_at",
    "version",
    "topics",
    "published",
    "failed",
    "dead",
    "lost",
    "breakers",
)


class Presence:
    """The row of one relay. Used by the relay's own thread only."""

    def __init__(self, database: Database, name: str, topics: TopicSelection) -> None:
        self._database = database
        self._name = name[:LEASED_BY_LENGTH]
        self._topics = " ".join(p for p, chosen in topics.rules if chosen) or "#"
        self._is_known = False
        self._next = 0.0
        self._outages: Mapping[str, Outage] = {}

    @property
    def seconds_to_next(self) -> float:
        """Until there is something to say again."""
        return max(self._next - monotonic(), 0.0)

    def tell(self, totals: Totals, outages: Mapping[str, Outage], *, stopped: bool = False) -> None:
        """Say that the relay lives, or that it has stopped; mostly it was just said, and nothing is done.

        Raises nothing that a database raises, and says nothing inside a transaction of a caller's.
        """
        is_news = stopped or outages != self._outages
        if monotonic() < self._next and not is_news:
            return
        self._next, self._outages = monotonic() + INTERVAL, dict(outages)
        connection = self._database.connection
        if connection.in_atomic_block:
            return
        try:
            self._write(totals, outages, stopped)
        except DatabaseError as error:
            # Whatever it is, the relay's own work meets it as well, and says so.
            logger.debug(
                "Could not say that the relay is there: %s",
                type(error).__name__,
                extra={"event": "presence_unsaid", "relay": self._name},
            )
            return
        self._is_known = True

    def _write(self, totals: Totals, outages: Mapping[str, Outage], stopped: bool) -> None:
        row = RelayProcess(
            name=self._name,
            started_at=DatabaseNow(),
            seen_at=DatabaseNow(),
            stopped_at=DatabaseNow() if stopped else None,
            version=django_outbox.__version__,
            topics=self._topics,
            published=totals.published,
            failed=totals.retried,
            dead=totals.dead,
            lost=totals.lost,
            breakers={
                alias: {"reason": outage.reason, "since": outage.since.isoformat()}
                for alias, outage in outages.items()
            },
        )
        # A process that had this name before is another one: its beginning is forgotten with it.
        told = _SAID if self._is_known else (*_SAID, "started_at")
        features = self._database.connection.features
        RelayProcess.objects.using(self._database.alias).bulk_create(
            [row],
            update_conflicts=True,
            update_fields=told,
            unique_fields=["name"] if features.supports_update_conflicts_with_target else None,
        )
