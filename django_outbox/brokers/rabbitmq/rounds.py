"""One round of messages on its way through a channel, shared by the caller and the I/O thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from uuid import UUID

import pika

from django_outbox.brokers.rabbitmq.confirms import ConfirmWindow
from django_outbox.receipts import Receipt


class End(Enum):
    """Why a round is over."""

    SETTLED = auto()
    """Every message has its receipt."""
    CHANNEL_CLOSED = auto()
    """The broker closed the channel: one of the messages on it is at fault."""
    CONNECTION_REFUSED = auto()
    """The broker closed the whole connection over what was sent on it."""
    TIMED_OUT = auto()
    """Confirms are missing although the broker answers on the same connection."""
    TOO_SLOW = auto()
    """Time is up, but confirms were still coming in, or the broker is busy: nobody is at fault."""
    LOST = auto()
    """No connection, or none any more, or the broker does not answer on it."""
    BLOCKED = auto()
    """The broker takes no messages: memory or disk alarm."""
    CLOSED = auto()
    """This process closed the channel."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a round ended. ``code`` is AMQP's reply code where the broker closed something."""

    end: End
    reason: str = ""
    code: int = 0


class EncodedProperties(pika.BasicProperties):  # type: ignore[misc] # pika has no types
    """Properties that were encoded before: pika puts them into the frame as they are."""

    def __init__(self, encoded: bytes) -> None:
        # The other attributes are for reading; a message on its way out is never read.
        self._encoded = encoded

    def __len__(self) -> int:
        return len(self._encoded)

    def encode(self) -> list[bytes]:
        """The pieces of the frame; pika changes the list that it gets."""
        return [self._encoded]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message, ready for ``basic.publish``."""

    message_id: UUID
    routing_key: str
    properties: EncodedProperties
    body: bytes


class Round:
    """What one caller sends and waits for. The I/O thread fills it in; the caller only waits."""

    def __init__(self, outgoing: Sequence[Outgoing], confirm_timeout: float) -> None:
        self.outgoing = outgoing
        self.confirm_timeout = confirm_timeout
        """Seconds from the first byte."""
        self.next = 0
        """Index of the next message to be handed to the socket."""
        self.window: ConfirmWindow | None = None
        self.timer: Any = None
        """The I/O thread's, while it runs."""
        self.ending: Ending | None = None
        self._over = threading.Event()

    @property
    def is_written(self) -> bool:
        """Whether every message was handed to the socket."""
        return self.next >= len(self.outgoing)

    @property
    def is_settled(self) -> bool:
        """Whether every message has its receipt."""
        return self.is_written and self.window is not None and not self.window.waiting

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts so far."""
        return [] if self.window is None else list(self.window.receipts)

    def finish(self, ending: Ending) -> None:
        """End the round, once."""
        if self.ending is None:
            self.ending = ending
            self._over.set()

    def wait(self, seconds: float) -> Ending:
        """Wait for the end. Where it does not come in time, the I/O thread is taken for lost."""
        self._over.wait(seconds)
        if self.ending is None:
            self.finish(Ending(End.LOST, "the I/O thread did not answer in time"))
        assert self.ending is not None  # noqa: S101 - finish has set it
        return self.ending

    def without_receipt(self) -> tuple[list[Outgoing], list[Outgoing]]:
        """The messages that have none yet: (handed to the socket, not handed to it)."""
        done = {receipt.message_id for receipt in self.receipts}
        sent = [o for o in self.outgoing[: self.next] if o.message_id not in done]
        return sent, list(self.outgoing[self.next :])
