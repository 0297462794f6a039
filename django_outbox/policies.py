"""What the settings say, as values: how long, how often, and what with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class PublisherConfig:
    """One entry of ``OUTBOX["PUBLISHERS"]``: the class's path and what it is made with."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a failed message waits, and when it is given up."""

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(hours=1)
    max_attempts: int = 10


@dataclass(frozen=True, slots=True)
class Retention:
    """How long settled rows are kept. None: for ever. Zero for published: deleted at settle."""

    published: timedelta | None = timedelta(days=7)
    discarded: timedelta | None = timedelta(days=30)
    dead: timedelta | None = None
    processed: timedelta | None = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """``OUTBOX["ARCHIVE"]``: the path of a callable, or of a class and what it is made with."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """``OUTBOX["CONSUMERS"]``: how often a failed delivery is repeated, and where "seen" is kept."""

    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(cap=timedelta(minutes=5)))
    seen_in: Literal["table", "cache"] = "table"
    cache: str = "default"
    """The alias in ``CACHES``, where ``seen_in`` is the cache."""
