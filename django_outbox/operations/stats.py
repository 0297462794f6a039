"""How the outbox is doing, for people, probes and metrics: at most ten statements, however large the table.

Nothing here reads the table as a whole. Groups of up to ``COUNTED`` rows are counted; of larger ones the
database's estimate is given, and flagged as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_outbox.databases import outbox_alias
from django_outbox.models import OutboxMessage, RelayProcess
from django_outbox.operations.counts import COUNTED, Count, count_messages
from django_outbox.operations.failures import FailureGroup, failure_groups
from django_outbox.operations.pace import Latency, pace

#: Relays that are listed, the last seen first.
_RELAYS = 50

__all__ = [
    "COUNTED",
    "Count",
    "FailureGroup",
    "Latency",
    "RelaySeen",
    "Stats",
    "collect_stats",
]


@dataclass(frozen=True, slots=True)
class RelaySeen:
    """One relay, as it last described itself."""

    name: str
    """host:pid, as in the column ``leased_by``."""
    started_at: datetime
    seen_at: datetime
    is_alive: bool
    """Seen within the last minute, and not stopped."""
    open_breakers: Mapping[str, str] = field(default_factory=dict)
    """Publishers whose broker takes no messages, with the reason."""
    open_since: Mapping[str, datetime] = field(default_factory=dict)
    """Since when, by the relay's own clock."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of one outbox at one time, by the database's clock."""

    taken_at: datetime
    counts: Mapping[str, Count]
    """By state: ``ready``, ``scheduled``, ``retrying``, ``in_flight``, ``dead``, ``published`` and
    ``discarded``, each message once; and ``blocked``, which are among the first three."""
    oldest_due: timedelta | None
    """How long the message that has been due for longest has been so; None: nothing is due."""
    published_per_minute: float | None
    """Over the last minute; None where published rows are deleted at settle."""
    latency: Latency | None
    """Of the last published messages; None where there are none."""
    failures: tuple[FailureGroup, ...]
    """Dead and retrying messages by what is wrong, the largest groups first."""
    relays: tuple[RelaySeen, ...]
    """Those of the last day, the last seen first."""

    @property
    def broker_down(self) -> tuple[str, ...]:
        """The publishers that some living relay finds down, by alias."""
        aliases = {
            alias for relay in self.relays if relay.is_alive for alias in relay.open_breakers
        }
        return tuple(sorted(aliases))

    def as_json(self) -> dict[str, Any]:
        """The same as JSON takes it. The keys are stable: docs/reference/commands.md lists them."""
        return {
            "taken_at": self.taken_at.isoformat(),
            "counts": {
                state: {"number": count.number, "is_estimate": count.is_estimate}
                for state, count in self.counts.items()
            },
            "oldest_due_seconds": _seconds(self.oldest_due),
            "published_per_minute": self.published_per_minute,
            "latency": self.latency
            and {
                "median_seconds": _seconds(self.latency.median),
                "p99_seconds": _seconds(self.latency.p99),
            },
            "failures": [
                {
                    "error": group.error,
                    "topic": group.topic,
                    "status": group.status,
                    "count": group.count,
                    "is_estimate": group.is_estimate,
                    "oldest": group.oldest.isoformat(),
                }
                for group in self.failures
            ],
            "relays": [
                {
                    "name": relay.name,
                    "started_at": relay.started_at.isoformat(),
                    "seen_at": relay.seen_at.isoformat(),
                    "is_alive": relay.is_alive,
                    "open_breakers": dict(relay.open_breakers),
                }
                for relay in self.relays
            ],
            "broker_down": list(self.broker_down),
        }


def collect_stats(*, database: str | None = None) -> Stats:
    """Look at the outbox of this alias, by default the one that is written to."""
    alias = database or outbox_alias()
    messages = OutboxMessage.objects.using(alias)
    taken_at, oldest_due_at, counts = count_messages(messages)
    per_minute, latency = pace(messages, taken_at)
    return Stats(
        taken_at=taken_at,
        counts=counts,
        oldest_due=None if oldest_due_at is None else max(taken_at - oldest_due_at, timedelta(0)),
        published_per_minute=per_minute,
        latency=latency,
        failures=failure_groups(messages),
        relays=_relays(alias),
    )


def _relays(alias: str) -> tuple[RelaySeen, ...]:
    relays = RelayProcess.objects.using(alias)
    known = relays.with_is_alive().order_by("-seen_at", "name")[:_RELAYS]
    return tuple(
        RelaySeen(
            each.name,
            each.started_at,
            each.seen_at,
            each.is_alive,
            {name: str(breaker.get("reason", "")) for name, breaker in each.breakers.items()},
            {
                name: datetime.fromisoformat(breaker["since"])
                for name, breaker in each.breakers.items()
                if "since" in breaker
            },
        )
        for each in known
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
