"""Publish one batch: round after round, no transaction open.

The next round begins when the one before has its receipts; what stands behind a failed message of its
aggregate is not sent, nor what is left when half of the lease is spent, the broker is down, or the
relay stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TypeAlias

from django_outbox.batches import Batch, Claimed
from django_outbox.observers import Publishing, publishing
from django_outbox.policies import RetryPolicy
from django_outbox.publishers.base import Outcome, Publisher, Receipt
from django_outbox.publishers.unforeseen import unforeseen
from django_outbox.relay.ordering import queue_of, rounds
from django_outbox.relay.verdicts import is_exhausted
from django_outbox.routing import Ordering, Routes

NO_ROUTE = "no pattern of OUTBOX['ROUTES'] matches the topic"
#: At most so many messages a call of a publisher that works in the relay's own thread: it may be slow,
#: and between two calls the lease and the stop are looked at.
INLINE_ROUND = 10

Receipts: TypeAlias = dict[int, Receipt]
"""By row id."""


class BatchPublishing:
    """What it takes to publish batches: who publishes what, and when to stop."""

    def __init__(
        self,
        routes: Routes,
        publishers: Mapping[str, Publisher],
        policy: RetryPolicy,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._routes = routes
        self._publishers = publishers
        self._policy = policy
        self._is_stopping = is_stopping

    def by_publisher(self, claimed: Sequence[Claimed]) -> dict[str | None, list[Claimed]]:
        """The rows by the alias of their publisher; None: no route leads to any."""
        parts: dict[str | None, list[Claimed]] = {}
        for each in claimed:
            route = self._routes.route_for(each.message.topic)
            parts.setdefault(route.publisher if route else None, []).append(each)
        return parts

    def publish(self, batch: Batch, alias: str | None, receipts: Receipts) -> None:
        """Publish the batch, all of which goes to one publisher, and write down what comes back.

        A row without a receipt at the end was not sent. Raises nothing that a publisher raises.
        """
        fresh = [each for each in batch.claimed if not is_exhausted(each.attempts, self._policy)]
        if alias is None:
            for each in fresh:
                receipts[each.row_id] = Receipt(each.message.id, Outcome.REJECTED, NO_ROUTE)
            return
        held: set[tuple[str, str] | None] = set()
        for round_ in self._rounds(fresh, self._publishers[alias]):
            if self._is_stopping() or monotonic() > batch.half_time:
                return
            sendable = [each for each in round_ if self._queue_of(each) not in held]
            if not sendable:
                continue
            answers = self._send(alias, sendable)
            receipts.update(answers)
            failed = [e for e in sendable if answers[e.row_id].outcome is not Outcome.CONFIRMED]
            if any(answers[e.row_id].outcome is Outcome.BROKER_DOWN for e in failed):
                return
            held.update(self._queue_of(each) for each in failed)
            held.discard(None)

    def _rounds(self, claimed: Sequence[Claimed], publisher: Publisher) -> Iterator[list[Claimed]]:
        for round_ in rounds(claimed, self._ordering_of):
            size = len(round_) if publisher.supports_concurrent_publish else INLINE_ROUND
            for start in range(0, len(round_), size):
                yield round_[start : start + size]

    def _queue_of(self, each: Claimed) -> tuple[str, str] | None:
        return queue_of(each, self._ordering_of)

    def _ordering_of(self, topic: str) -> Ordering:
        route = self._routes.route_for(topic)
        return route.ordering if route else Ordering.STRICT

    def _send(self, alias: str, sendable: Sequence[Claimed]) -> Receipts:
        round_ = Publishing(alias, [each.message for each in sendable])
        try:
            with publishing(round_):
                round_.receipts = self._publishers[alias].publish(round_.messages)
        except Exception as error:
            # Its contract says that it raises nothing.
            round_.receipts = unforeseen(alias, error, round_.messages)
        by_id = {receipt.message_id: receipt for receipt in round_.receipts}
        return {
            each.row_id: by_id.get(each.message.id)
            or Receipt(each.message.id, Outcome.FAILED, "the publisher gave no receipt")
            for each in sendable
        }
