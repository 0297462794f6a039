"""Put a received message aside: to wait for its next attempt, or into the dead-letter queue.

The copy is published with a confirm before the delivery is acknowledged, so a message is in two
places for a moment and never in none. See docs/decisions/0020-retries-on-rabbitmq.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pika
from pika import exceptions

from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.errors import connection_trouble, reply
from django_outbox.brokers.rabbitmq.rounds import EncodedProperties
from django_outbox.brokers.rabbitmq.subscription import Delivery
from django_outbox.brokers.rabbitmq.topology import WorkQueue
from django_outbox.brokers.rabbitmq.uninstrumented import uninstrumented
from django_outbox.wire.amqp import ASIDE_PREFIX, is_brokers

logger = logging.getLogger("django_outbox.brokers.rabbitmq")

#: Failed attempts so far; on messages that wait for the next one.
ATTEMPTS: Final = f"{ASIDE_PREFIX}attempts"
#: On copies of what may be the end of its consumer: it is handled with care from then on.
SUSPECT: Final = f"{ASIDE_PREFIX}suspect"
#: Where the message was first published to.
ROUTING_KEY: Final = f"{ASIDE_PREFIX}routing-key"
EXCHANGE: Final = f"{ASIDE_PREFIX}exchange"
#: Why, where and when it was set aside; on dead-lettered messages.
REASON: Final = f"{ASIDE_PREFIX}reason"
QUEUE: Final = f"{ASIDE_PREFIX}queue"
DEAD_AT: Final = f"{ASIDE_PREFIX}dead-at"

#: The broker's code for a header frame that is larger than it takes (AMQP 0-9-1, 1.1).
_FRAME_ERROR: Final = 501
#: Seconds that a publish may wait for a broker that has stopped to read.
_BLOCKED_TIMEOUT: Final = 10


@dataclass(frozen=True, slots=True)
class Aside:
    """A copy of a received message, and where it goes."""

    exchange: str
    routing_key: str
    properties: Any = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotSent:
    """A copy that was not taken. ``for_good``: it never will be."""

    reason: str
    for_good: bool = False


def failed_attempts(headers: Mapping[str, Any]) -> int:
    """How many attempts a received message has behind it, by our own count."""
    attempts = headers.get(ATTEMPTS)
    return attempts if isinstance(attempts, int) and 0 <= attempts < 2**31 else 0


def first_routing_key(delivery: Delivery) -> str:
    """The key that the message was first published with."""
    key = delivery.headers.get(ROUTING_KEY)
    return key if isinstance(key, str) and key else delivery.routing_key


def is_suspect(headers: Mapping[str, Any]) -> bool:
    """Whether the message is the copy of one that may have ended its consumer."""
    return bool(headers.get(SUSPECT))


def to_wait(
    delivery: Delivery,
    queue: WorkQueue,
    delay: timedelta,
    attempts: int,
    *,
    is_suspect: bool = False,
) -> Aside:
    """The message on its way to come again after the delay, with that many attempts behind it."""
    name, milliseconds = queue.wait_queue(delay)
    notes: dict[str, str | int] = {ATTEMPTS: attempts}
    if is_suspect:
        notes[SUSPECT] = 1
    properties = _properties(delivery, notes, expiration=str(milliseconds))
    return Aside("", name, properties, delivery.body)


def to_dead_letters(delivery: Delivery, exchange: str, queue: WorkQueue, reason: str) -> Aside:
    """The message on its way to the dead-letter queue, with the reason in its headers."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    notes: dict[str, str | int] = {REASON: reason, QUEUE: delivery.queue, DEAD_AT: now}
    return Aside(exchange, queue.name, _properties(delivery, notes), delivery.body)


def _properties(delivery: Delivery, notes: dict[str, str | int], expiration: str = "") -> Any:
    first_exchange = delivery.headers.get(EXCHANGE)
    if not isinstance(first_exchange, str):
        first_exchange = delivery.exchange
    notes |= {ROUTING_KEY: first_routing_key(delivery), EXCHANGE: first_exchange}
    # Without the broker's own headers: with x-death kept, it takes the second round through a wait
    # queue for a cycle and drops the message.
    return EncodedProperties(
        delivery.properties.copied(without=_is_ours, notes=notes, expiration=expiration)
    )


def _is_ours(header: str) -> bool:
    return is_brokers(header) or header.startswith(ASIDE_PREFIX)


class AsideSender:
    """Publishes copies one by one, each with its confirm. Belongs to one thread.

    Its connection is its own, because a broker that runs out of memory stops to read from whoever
    publishes, and the acks of good messages must still get through. It is made at the first use and
    again when it turns out to be gone.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._connection: Any = None
        self._channel: Any = None

    def send(self, aside: Aside) -> NotSent | None:
        """Publish and wait for the broker's word. None: it has taken responsibility for the copy."""
        failure = self._try(aside)
        if failure is not None and self._channel is None and not failure.for_good:
            # An idle connection may be long gone without anybody having noticed.
            failure = self._try(aside)
        return failure

    def close(self) -> None:
        """Let go of the connection. The sender can be used again afterwards."""
        with suppress(Exception):
            self._connection.close()
        self._connection = self._channel = None

    def _try(self, aside: Aside) -> NotSent | None:
        try:
            self._open_channel().basic_publish(
                aside.exchange, aside.routing_key, aside.body, aside.properties, mandatory=True
            )
        except exceptions.UnroutableError:
            return NotSent(f"no queue takes {aside.routing_key!r} from {aside.exchange!r}")
        except exceptions.NackError:
            return NotSent(f"the broker refused it (nack): {aside.routing_key!r} is full or failed")
        except exceptions.ChannelClosedByBroker as error:
            self._channel = None
            return NotSent(reply(error))
        except exceptions.ConnectionClosedByBroker as error:
            self.close()
            return NotSent(reply(error), for_good=error.reply_code == _FRAME_ERROR)
        except (exceptions.AMQPError, OSError) as error:
            self.close()
            return NotSent(connection_trouble(error))
        return None

    def _open_channel(self) -> Any:
        if self._connection is None:
            parameters = self._options.parameters("django_outbox asides")
            for each in parameters:
                each.blocked_connection_timeout = _BLOCKED_TIMEOUT
            self._connection = pika.BlockingConnection(parameters)
        if self._channel is None:
            self._channel = uninstrumented(self._connection.channel())
            self._channel.confirm_delivery()
        return self._channel
