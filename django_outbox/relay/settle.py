"""Write the verdicts of a batch back, fenced, and tell of what became of it.

A settle that does not reach the database is repeated until the lease is over, or the relay may wait no
longer; then the rows are somebody else's, and each may be published once more under the same message id.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from time import monotonic

from django.db import Error as DatabaseError

from django_outbox import signals
from django_outbox.backoff import retry_delay
from django_outbox.batches import (
    Batch,
    Claimed,
    Dead,
    Published,
    Released,
    Retry,
    Settlement,
    Verdict,
)
from django_outbox.databases import Database
from django_outbox.databases.errors import may_pass
from django_outbox.policies import RetryPolicy

logger = logging.getLogger(__name__)

#: Between two tries at a database that is away.
PATIENCE = RetryPolicy(base=timedelta(seconds=0.2), cap=timedelta(seconds=5))


@dataclass(slots=True)
class Totals:
    """How many messages came to what. The sums of a turn, a drain, or a relay's life."""

    claimed: int = 0
    published: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    lost: int = 0

    def add(self, other: Totals) -> None:
        """Count the other's messages in."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def since(self, earlier: Totals) -> Totals:
        """What was added to an earlier state of these sums."""
        return Totals(
            **{
                each.name: getattr(self, each.name) - getattr(earlier, each.name)
                for each in fields(self)
            }
        )

    def __str__(self) -> str:
        counts = ((each.name, getattr(self, each.name)) for each in fields(self))
        return ", ".join(f"{name} {count:,}" for name, count in counts if count) or "nothing"

    @property
    def is_clean(self) -> bool:
        """Whether no attempt failed."""
        return not (self.retried or self.dead or self.lost)


def settle(
    database: Database,
    batch: Batch,
    verdicts: Mapping[int, Verdict],
    *,
    delete_published: bool,
    pause: Callable[[float], bool],
) -> Totals:
    """Settle the batch and report it; returns the counts of what was applied.

    ``pause`` sleeps between two tries at a database that is away. False: try no more.
    """
    settlement = _write(database, batch, verdicts, delete_published, pause)
    lost = set(settlement.lost_rows)
    applied = [(each, verdicts[each.row_id]) for each in batch.claimed if each.row_id not in lost]
    totals = _count(batch, applied, settlement)
    _report(applied, [each for each in batch.claimed if each.row_id in lost])
    return totals


def _write(
    database: Database,
    batch: Batch,
    verdicts: Mapping[int, Verdict],
    delete_published: bool,
    pause: Callable[[float], bool],
) -> Settlement:
    lease_end = batch.started + batch.lease.total_seconds()
    attempt = 0
    while True:
        try:
            return database.settle(batch.token, verdicts, delete_published=delete_published)
        except DatabaseError as error:
            if not may_pass(error):
                raise
            database.connection.close()
        attempt += 1
        if attempt == 1:
            logger.warning(
                "The database went away while a batch was settled; trying again.",
                extra={"event": "settle_repeated", "database": database.alias},
            )
        if monotonic() >= lease_end or not pause(retry_delay(attempt, PATIENCE).total_seconds()):
            logger.error(
                "%d messages could not be settled: the database stayed away. They will be published"
                " again.",
                len(verdicts),
                extra={"event": "settle_failed", "count": len(verdicts)},
            )
            return Settlement(0, len(verdicts), tuple(verdicts))


def _count(batch: Batch, applied: list[tuple[Claimed, Verdict]], settlement: Settlement) -> Totals:
    kinds = Counter(type(verdict) for _, verdict in applied)
    return Totals(
        claimed=len(batch),
        published=kinds[Published],
        retried=kinds[Retry],
        dead=kinds[Dead],
        released=kinds[Released],
        lost=settlement.lost,
    )


def _report(applied: list[tuple[Claimed, Verdict]], lost: list[Claimed]) -> None:
    published = [each.message for each, verdict in applied if isinstance(verdict, Published)]
    if published:
        signals.tell_published(published)
    failed = [(each, verdict) for each, verdict in applied if isinstance(verdict, Retry)]
    if failed:
        signals.tell_failed(failed)
    dead = [(each, verdict) for each, verdict in applied if isinstance(verdict, Dead)]
    if dead:
        signals.tell_dead(dead)
    if lost:
        signals.tell_lease_lost([each.message for each in lost])
