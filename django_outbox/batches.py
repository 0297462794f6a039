"""What passes between the relay and the database: Limits in, Batch out, Verdicts back. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

from django_outbox.messages import Message
from django_outbox.topics import EVERY_TOPIC, NO_TOPIC, TopicSelection


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one claim may take, for how long, and of what."""

    rows: int
    bytes: int
    """Sum of the rows' ``size``; one row is taken whatever its size."""
    lease: timedelta
    topics: TopicSelection = EVERY_TOPIC
    """Which topics this relay serves: its ``--topics``."""
    reachable: TopicSelection = EVERY_TOPIC
    """Which topics have a broker that is not known to be down."""
    unordered: TopicSelection = NO_TOPIC
    """Topics routed with ``ordering="none"``: their aggregate holds nothing back."""
    blocking: TopicSelection = NO_TOPIC
    """Topics routed with ``on_dead="block"``: a dead message holds back its successors."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One row under lease, as it will be published."""

    row_id: int
    attempts: int
    """This attempt included: the claim has counted it."""
    size: int
    message: Message


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim took, in row-id order, with the token that fences its settling."""

    token: UUID
    claimed: tuple[Claimed, ...]
    lease: timedelta
    started: float
    """Monotonic seconds of this process, read before the claim: the lease ends no sooner than ``started + lease``."""

    def __len__(self) -> int:
        return len(self.claimed)

    @property
    def half_time(self) -> float:
        """Monotonic seconds at which half of the lease is spent."""
        return self.started + self.lease.total_seconds() / 2


@dataclass(frozen=True, slots=True)
class Published:
    """The broker has taken responsibility for the message."""


@dataclass(frozen=True, slots=True)
class Released:
    """The message was not tried: back to pending, the attempt refunded."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; due again after the delay."""

    delay: timedelta
    reason: str
    cause: str = ""
    """The reason as one of a few words, for counting: ``Receipt.kind``."""


@dataclass(frozen=True, slots=True)
class Dead:
    """Attempts are exhausted: kept until somebody requeues or discards it."""

    reason: str
    cause: str = ""
    """As in Retry, or ``abandoned``: no attempt ever came back."""


Verdict: TypeAlias = Published | Released | Retry | Dead


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a settle did. ``lost`` rows had another lease by then and were left as they are."""

    applied: int = 0
    lost: int = 0
    lost_rows: tuple[int, ...] = field(default=(), repr=False)
