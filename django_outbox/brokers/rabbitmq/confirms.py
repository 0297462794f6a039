"""What the broker has said about the messages of one round. Pure: no socket, no clock.

AMQP numbers the messages of a channel from 1 as they are published (delivery tags); RabbitMQ answers
each by an ack or a nack, alone or for every tag up to one (``multiple``), in any order. A mandatory
message that no queue took comes back first (``basic.return``) and is acked like the others.
"""

from __future__ import annotations

from uuid import UUID

from django_outbox.receipts import Outcome, Receipt

NACKED = "the broker refused it (nack): its queue is full or failed"


class ConfirmWindow:
    """The messages of one round on one channel, published without a gap between them."""

    def __init__(self, first_tag: int) -> None:
        self.receipts: list[Receipt] = []
        self._first_tag = first_tag
        self._sent: list[UUID | None] = []  # by tag; None once settled
        self._settled_below = 0  # every index below it is None
        self._waiting = 0
        self._returned: dict[UUID, str] = {}

    @property
    def next_tag(self) -> int:
        """The delivery tag of the channel's next message."""
        return self._first_tag + len(self._sent)

    @property
    def waiting(self) -> int:
        """How many messages were sent and not yet acked or nacked."""
        return self._waiting

    def sent(self, message_id: UUID) -> None:
        """Note that a message was published: it has taken the channel's next tag."""
        self._sent.append(message_id)
        self._waiting += 1

    def refused(self, message_id: UUID, reason: str) -> None:
        """Note that a message could not be put on the wire; it has taken no tag."""
        self.receipts.append(Receipt(message_id, Outcome.REJECTED, reason))

    def returned(self, message_id: UUID, reason: str) -> None:
        """Note that the broker sent a message back; its ack is still to come."""
        self._returned[message_id] = reason

    def settled(self, tag: int, *, multiple: bool, acked: bool) -> None:
        """Make the receipts of the messages that one ack or nack speaks of.

        Tags of other rounds, and tags that were settled before, are passed over.
        """
        index = tag - self._first_tag
        first = self._settled_below if multiple else index
        last = min(index, len(self._sent) - 1)
        for position in range(max(first, 0), last + 1):
            message_id = self._sent[position]
            if message_id is not None:
                self._sent[position] = None
                self._waiting -= 1
                self.receipts.append(self._receipt(message_id, acked))
        if multiple:
            self._settled_below = max(self._settled_below, last + 1)

    def unsettled(self) -> list[UUID]:
        """The messages that were sent and have no receipt yet, in the order of sending."""
        return [message_id for message_id in self._sent if message_id is not None]

    def _receipt(self, message_id: UUID, acked: bool) -> Receipt:
        # RabbitMQ sends basic.return before the ack of the same message.
        if self._returned and message_id in self._returned:
            reason = self._returned.pop(message_id)
            return Receipt(message_id, Outcome.REJECTED, reason, cause="returned")
        if acked:
            return Receipt(message_id, Outcome.CONFIRMED)
        return Receipt(message_id, Outcome.FAILED, NACKED, cause="nacked")
