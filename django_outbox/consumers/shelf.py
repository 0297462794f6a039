"""Deliveries that go elsewhere: copied to where they wait or stay, then acknowledged."""

from __future__ import annotations

import logging
import time
from collections import deque
from datetime import timedelta
from typing import Final

from django_outbox.backoff import retry_delay
from django_outbox.brokers.rabbitmq.asides import (
    Aside,
    AsideSender,
    NotSent,
    to_dead_letters,
    to_wait,
)
from django_outbox.brokers.rabbitmq.subscription import Delivery
from django_outbox.consumers.intake import Intake, Received
from django_outbox.policies import RetryPolicy

logger = logging.getLogger("django_outbox.consumers.rabbitmq")

#: How long to wait before the broker is tried again.
_PAUSE: Final = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(seconds=30))


class Shelf:
    """Puts deliveries aside. What finds no place stays unacknowledged and is tried again.

    Belongs to the thread that handles. A broker that takes no copies does not stop the deliveries
    that need none; the prefetch bounds how many are held.
    """

    def __init__(self, intake: Intake) -> None:
        self._dead_letter_exchange = intake.topology.dead_letter_exchange
        self._intake = intake
        self._sender = AsideSender(intake.connection)
        self._held: deque[tuple[Delivery, Aside]] = deque()
        self._held_until = 0.0
        self._failures = 0

    def wait(self, received: Received, delay: timedelta, attempts: int) -> None:
        """Have it come again after the delay, with that many attempts behind it."""
        aside = to_wait(received.delivery, received.queue, delay, attempts)
        self._put(received.delivery, aside)

    def replace_by_copy(self, received: Received, delay: timedelta) -> bool:
        """As ``wait``, for an attempt that is still to be made, and gone from the queue for sure.

        False: not now, so the attempt is not to be made; a copy is there or will be.
        """
        attempt = received.message.attempt
        aside = to_wait(received.delivery, received.queue, delay, attempt, is_suspect=True)
        failure = self._sender.send(aside)
        if failure is not None:
            self._hold(received.delivery, aside, failure)
            return False
        return received.delivery.ack_for_sure()

    def give_up(self, delivery: Delivery, reason: str) -> None:
        """Set it aside in the dead-letter queue."""
        logger.error(
            "A message from %r is set aside: %s",
            delivery.queue,
            reason,
            extra={
                "event": "delivery_set_aside",
                "queue": delivery.queue,
                "message_id": delivery.properties.message_id,
                "reason": reason,
            },
        )
        queue = self._intake.work_queue(delivery.queue)
        self._put(delivery, to_dead_letters(delivery, self._dead_letter_exchange, queue, reason))

    def tend(self, *, now: bool = False) -> None:
        """Try what is held again, when its time has come or ``now``."""
        if not self._held or (time.monotonic() < self._held_until and not now):
            return
        for _ in range(len(self._held)):
            delivery, aside = self._held.popleft()
            if delivery.subscription.is_over:
                continue  # the broker delivers it again
            failure = self._sender.send(aside)
            if failure is not None:
                self._hold(delivery, aside, failure)
                return
            delivery.ack()
        self._failures = 0

    def clear(self) -> None:
        """Forget what is held: the broker delivers it again."""
        self._held.clear()

    def close(self) -> None:
        """Let go of the connection."""
        self._sender.close()

    def _put(self, delivery: Delivery, aside: Aside) -> None:
        failure = self._sender.send(aside)
        if failure is None:
            delivery.ack()
        else:
            self._hold(delivery, aside, failure)

    def _hold(self, delivery: Delivery, aside: Aside, failure: NotSent) -> None:
        if failure.for_good:
            logger.error(
                "A message from %r is rejected as is: %s",
                delivery.queue,
                failure.reason,
                extra={
                    "event": "delivery_rejected",
                    "queue": delivery.queue,
                    "reason": failure.reason,
                },
            )
            delivery.reject()
            return
        self._held.append((delivery, aside))
        self._failures += 1
        delay = retry_delay(self._failures, _PAUSE).total_seconds()
        self._held_until = time.monotonic() + delay
        logger.error(
            "%d messages cannot be put aside and stay unacknowledged: %s. Trying again in %.1f s.",
            len(self._held),
            failure.reason,
            delay,
            extra={
                "event": "deliveries_held",
                "count": len(self._held),
                "reason": failure.reason,
            },
        )
