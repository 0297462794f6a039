"""Receipt: a publisher's verdict on one message. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID


class Outcome(Enum):
    """What became of one message that was handed to a publisher."""

    CONFIRMED = auto()
    """The broker has taken responsibility for it."""
    REJECTED = auto()
    """It cannot be delivered as things stand (unroutable, no such exchange, too large): a retry helps only after somebody acts."""
    FAILED = auto()
    """This attempt failed (nack, time-out of this message); the next one may succeed."""
    NOT_SENT = auto()
    """Its turn did not come, or a neighbour's fault took it along: no attempt is charged."""
    BROKER_DOWN = auto()
    """The broker cannot be reached or has blocked its publishers: no attempt is charged, the breaker opens."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The publisher's verdict on one message. ``reason`` holds no payload value."""

    message_id: UUID
    outcome: Outcome
    reason: str = ""
    cause: str = ""
    """One of a few words for what the broker did, where the outcome does not say it: ``returned``,
    ``nacked``. For counting; the reason is for people."""

    @property
    def kind(self) -> str:
        """The cause, or else the outcome, as a word to count by."""
        return self.cause or self.outcome.name.lower()
