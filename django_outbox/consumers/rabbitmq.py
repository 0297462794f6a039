"""Receive events from RabbitMQ: what ``manage.py outbox_consume`` runs.

One thread handles, the connection's own thread serves heartbeats and acks. A delivery is acknowledged
after the commit of its effect. One that failed waits in a wait queue and comes again; one that is
given up goes to the dead-letter queue with the reason. Neither holds back the messages behind it,
unless their order is to be kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol, assert_never

from django.db import DatabaseError

from django_outbox.backoff import retry_delay
from django_outbox.brokers.rabbitmq.asides import is_suspect
from django_outbox.brokers.rabbitmq.subscription import Delivery, Subscription
from django_outbox.consumers.delivery import deliver, deliver_batch, retry_policy
from django_outbox.consumers.failures import database_answers
from django_outbox.consumers.inbox import inbox_alias, was_processed
from django_outbox.consumers.intake import Intake, Received, read
from django_outbox.consumers.registry import Consumer
from django_outbox.consumers.shelf import Shelf
from django_outbox.consumers.verdicts import (
    Ack,
    DeadLetter,
    RetryLater,
    Verdict,
    verdict_of_all,
)
from django_outbox.databases.connecting import refresh_all
from django_outbox.exceptions import ImproperlyConfiguredOutbox, MalformedMessage
from django_outbox.messages import Message
from django_outbox.policies import RetryPolicy

logger = logging.getLogger("django_outbox.consumers.rabbitmq")

#: How long a turn waits for a delivery, in seconds: also how soon a stop is noticed while idle.
_TURN: Final = 0.5
#: How long an incomplete batch waits for more, in seconds.
_LINGER: Final = 0.02
#: How long to wait before the broker or the database is tried again.
_PAUSE: Final = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(seconds=30))
#: A delivery that came back this often without an outcome may be what kills its consumer.
_SUSPICIOUS: Final = 2


class Stop(Protocol):
    """Says when to stop; relay/shutdown.py has one that signals set."""

    @property
    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep that many seconds, less when told to stop meanwhile. Whether to stop."""
        ...


class QueueConsumer:
    """Receives, handles and acknowledges until it is told to stop. Belongs to one thread."""

    def __init__(self, intake: Intake, on_turn: Callable[[], object] = lambda: None) -> None:
        """``on_turn`` is called whenever the loop goes round, also while broker or database are away."""
        self._intake = intake
        self._on_turn = on_turn
        self._shelf = Shelf(intake)
        self._has_received = False
        self._begun: set[str] = set()
        """Queues of which this subscription has delivered anything."""

    def run(self, stop: Stop) -> None:
        """Receive until ``stop`` is set, then finish what is at work and acknowledge it.

        Connections that are lost are made again. Raises ``ImproperlyConfiguredOutbox`` where the
        first one shows that a queue or exchange does not exist.
        """
        failures = 0
        while not stop.is_set:
            subscription = self.subscribe()
            try:
                self._serve(subscription, stop)
            finally:
                subscription.close()
            if stop.wait(0):
                break
            if subscription.missing and not self._has_received:
                raise ImproperlyConfiguredOutbox(_missing(subscription.missing))
            failures = 1 if subscription.was_receiving else failures + 1
            delay = retry_delay(failures, _PAUSE).total_seconds()
            logger.warning(
                "Receiving ended: %s. Connecting again in %.1f s.",
                subscription.why_over,
                delay,
                extra={"event": "receiving_ended", "reason": subscription.why_over},
            )
            self._on_turn()
            stop.wait(delay)
        self._shelf.close()

    def subscribe(self) -> Subscription:
        """A new subscription to the queues; it connects on its own."""
        self._begun.clear()
        consumed = self._intake.consumed
        queues = [self._intake.work_queue(name) for name in consumed]
        needed = {queue.dead_letter_queue for queue in queues}
        needed |= {name for queue in queues for _, name in queue.wait_queues}
        return Subscription(
            self._intake.connection,
            consumed,
            prefetch=max(self._intake.prefetch, 2 * self._intake.batch),
            needed_exchanges=(self._intake.topology.dead_letter_exchange,),
            needed_queues=sorted(needed),
        )

    def run_once(self, subscription: Subscription, stop: Stop, timeout: float = _TURN) -> int:
        """Handle what is there, or comes within ``timeout`` seconds. Returns how many deliveries."""
        self._shelf.tend()
        batch = self._intake.batch
        deliveries = subscription.take(batch, timeout, _LINGER if batch > 1 else 0.0)
        if deliveries:
            self._handle(deliveries, stop)
        else:
            refresh_all()
        return len(deliveries)

    def _serve(self, subscription: Subscription, stop: Stop) -> None:
        while not subscription.is_over and not stop.is_set:
            self._on_turn()
            self.run_once(subscription, stop)
            self._has_received = self._has_received or subscription.was_receiving
        subscription.stop()
        self._shelf.tend(now=True)
        self._shelf.clear()

    def _handle(self, deliveries: Sequence[Delivery], stop: Stop) -> None:
        together: list[Received] = []
        for delivery in deliveries:
            if stop.is_set:
                break  # what is not acknowledged comes again
            try:
                received = read(self._intake, delivery)
            except MalformedMessage as error:
                self._shelf.give_up(delivery, str(error))
                continue
            if self._is_suspect(received):
                self._handle_suspect(received, stop)
            elif received.is_for_batches:
                together.append(received)
            else:
                self._handle_alone(received, stop)
        if together:
            self._handle_together(together, stop)

    def _handle_alone(self, received: Received, stop: Stop) -> None:
        while True:
            decided = self._decide([received], stop)
            if not decided:
                return
            (verdict,) = decided
            if not isinstance(verdict, RetryLater) or not received.queue.is_ordered:
                self._carry_out(received, verdict)
                return
            # Order is kept: the ones behind it wait with it.
            if stop.wait(verdict.delay.total_seconds()):
                return
            received = received.at_attempt(received.message.attempt + verdict.charged)

    def _handle_together(self, received: Sequence[Received], stop: Stop) -> None:
        decided = self._decide(received, stop)
        for each, verdict in zip(received, decided, strict=False):
            self._carry_out(each, verdict)

    def _decide(self, received: Sequence[Received], stop: Stop) -> list[Verdict]:
        """One verdict each; none at all where it was told to stop while a database was away."""
        while True:
            verdicts: list[list[Verdict]] = [[] for _ in received]
            away = ""
            for consumer in self._intake.consumers:
                taken = [n for n, each in enumerate(received) if consumer in each.consumers]
                reached = _deliver(consumer, [received[n].message for n in taken])
                for n, verdict in zip(taken, reached, strict=True):
                    verdicts[n].append(verdict)
                away = away or _database_away(consumer, reached)
            if not away:
                return [verdict_of_all(each) for each in verdicts]
            # Nothing is acknowledged, and nothing else would succeed now.
            if not _wait_for_database(away, stop, self._on_turn):
                return []

    def _carry_out(self, received: Received, verdict: Verdict) -> None:
        match verdict:
            case Ack():
                received.delivery.ack()
            case RetryLater(delay, _, charged):
                attempts = received.message.attempt - (not charged)
                self._shelf.wait(received, delay, attempts)
            case DeadLetter(reason):
                self._shelf.give_up(received.delivery, reason)
            case _ as never:
                assert_never(never)

    def _is_suspect(self, received: Received) -> bool:
        """Whether this may be the message that ends the process that handles it."""
        delivery, is_ordered = received.delivery, received.queue.is_ordered
        is_first = delivery.queue not in self._begun
        self._begun.add(delivery.queue)
        if is_suspect(delivery.headers):
            return True
        returned = delivery.headers.get("x-delivery-count")
        if not isinstance(returned, int):  # a classic queue does not count
            return delivery.redelivered and not is_ordered
        if is_ordered:
            # Only the one at the head was at work when the last consumer ended.
            return is_first and returned >= received.most_attempts
        return returned >= _SUSPICIOUS

    def _handle_suspect(self, received: Received, stop: Stop) -> None:
        """Count the attempt before it is made: a copy that waits takes the place of the delivery.

        Where the process survives, the copy will be a duplicate, or the next attempt; where it does
        not, the copy is all that is left. Neighbours that came back for its sake are done with at
        their first turn, so that the broker's delivery limit does not reach them.
        """
        attempt = received.message.attempt
        if _is_done(received):
            received.delivery.ack()
            return
        if received.queue.is_ordered or attempt >= received.most_attempts:
            reason = f"its consumer ended again and again, attempt {attempt}"
            self._shelf.give_up(received.delivery, reason)
            return
        delay = retry_delay(attempt, retry_policy(received.consumers[0]))
        if self._shelf.replace_by_copy(received, delay):
            self._decide([received], stop)


def _is_done(received: Received) -> bool:
    """Whether all of its consumers have processed the message before."""
    try:
        return all(was_processed(each, received.message) for each in received.consumers)
    except DatabaseError:
        return False


def _deliver(consumer: Consumer, messages: Sequence[Message]) -> list[Verdict]:
    if consumer.batch:
        return deliver_batch(consumer, messages) if messages else []
    return [deliver(consumer, message) for message in messages]


def _database_away(consumer: Consumer, verdicts: Sequence[Verdict]) -> str:
    """The alias of the consumer's database where that is why messages were not processed."""
    if any(isinstance(each, RetryLater) and not each.charged for each in verdicts):
        alias = inbox_alias(consumer)
        return "" if database_answers(alias) else alias
    return ""


def _wait_for_database(alias: str, stop: Stop, on_turn: Callable[[], object]) -> bool:
    """Wait until the database answers. False: told to stop before it did."""
    failures = 0
    while True:
        failures += 1
        delay = retry_delay(failures, _PAUSE).total_seconds()
        logger.warning(
            "The database %r does not answer; asking again in %.1f s.",
            alias,
            delay,
            extra={"event": "database_away", "database": alias},
        )
        on_turn()
        if stop.wait(delay):
            return False
        if database_answers(alias):
            logger.warning(
                "The database %r answers again.",
                alias,
                extra={"event": "database_back", "database": alias},
            )
            return True


def _missing(reason: str) -> str:
    return (
        f"RabbitMQ says: {reason}. The queues and exchanges that outbox_consume reads from and puts"
        " messages aside to are described in OUTBOX['TOPOLOGY'] and made by manage.py"
        " outbox_topology."
    )
