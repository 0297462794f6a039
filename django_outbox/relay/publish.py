"""Publish one batch: round after round, no transaction open.

Returns a receipt for every row. The next round begins when the one before has its receipts; what
stands behind a failed message of its aggregate is not sent, nor what is left when half of the lease
is spent, the broker is down, or the relay stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from django_outbox.batches import Batch, Claimed
from django_outbox.publishers.base import Outcome, Publisher, Receipt
from django_outbox.relay.ordering import queue_of, rounds
from django_outbox.routing import Ordering, Routes

logger = logging.getLogger(__name__)

NO_ROUTE = "no pattern of OUTBOX['ROUTES'] matches the topic"


class BatchPublishing:
    """What it takes to publish batches: who publishes what, and when to stop."""

    def __init__(
        self,
        routes: Routes,
        publisher_for: Callable[[str], Publisher],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._routes = routes
        self._publisher_for = publisher_for
        self._is_stopping = is_stopping

    def by_publisher(self, claimed: Sequence[Claimed]) -> dict[str | None, list[Claimed]]:
        """The rows by the alias of their publisher; None: no route leads to any."""
        parts: dict[str | None, list[Claimed]] = {}
        for each in claimed:
            route = self._routes.route_for(each.message.topic)
            parts.setdefault(route.publisher if route else None, []).append(each)
        return parts

    def publish(self, batch: Batch, alias: str | None, claimed: Sequence[Claimed]) -> Receipts:
        """Publish the rows that go to one publisher. Raises nothing that a publisher raises."""
        if alias is None:
            return {
                each.row_id: Receipt(each.message.id, Outcome.REJECTED, NO_ROUTE)
                for each in claimed
            }
        receipts: Receipts = {}
        held: set[tuple[str, str]] = set()
        is_down = False
        for round_ in rounds(claimed, self._ordering_of):
            is_late = is_down or self._is_stopping() or monotonic() > batch.half_time
            sendable = [] if is_late else [e for e in round_ if self._queue_of(e) not in held]
            sent = self._send(alias, sendable) if sendable else {}
            for each in round_:
                receipt = sent.get(each.row_id)
                if receipt is None:
                    receipt = Receipt(each.message.id, Outcome.NOT_SENT)
                receipts[each.row_id] = receipt
                if receipt.outcome is not Outcome.CONFIRMED:
                    is_down = is_down or receipt.outcome is Outcome.BROKER_DOWN
                    queue = self._queue_of(each)
                    if queue is not None:
                        held.add(queue)
        return receipts

    def _queue_of(self, each: Claimed) -> tuple[str, str] | None:
        return queue_of(each, self._ordering_of)

    def _ordering_of(self, topic: str) -> Ordering:
        route = self._routes.route_for(topic)
        return route.ordering if route else Ordering.STRICT

    def _send(self, alias: str, sendable: Sequence[Claimed]) -> Receipts:
        messages = [each.message for each in sendable]
        try:
            answers = self._publisher_for(alias).publish(messages)
        except Exception as error:
            # Its contract says that it raises nothing. What was sent is unknown: at least once.
            logger.exception("The publisher %r failed in an unforeseen way.", alias)
            reason = f"the publisher raised {type(error).__name__}"
            return {
                each.row_id: Receipt(each.message.id, Outcome.BROKER_DOWN, reason)
                for each in sendable
            }
        by_id = {receipt.message_id: receipt for receipt in answers}
        return {
            each.row_id: by_id.get(each.message.id)
            or Receipt(each.message.id, Outcome.FAILED, "the publisher gave no receipt")
            for each in sendable
        }


#: Row id -> receipt.
Receipts = dict[int, Receipt]
