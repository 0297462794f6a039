"""Receive from queues: one connection, one channel, deliveries handed to whichever thread takes them.

The I/O thread serves heartbeats and acks while a handler is at work. Nothing is acknowledged that was
not said to be done; when the connection ends, the broker delivers the rest again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from pika import exceptions

from django_outbox.brokers.rabbitmq.acks import AckWindow
from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.errors import reply
from django_outbox.brokers.rabbitmq.link import Link
from django_outbox.brokers.rabbitmq.rounds import End, Ending
from django_outbox.brokers.rabbitmq.uninstrumented import uninstrumented
from django_outbox.brokers.rabbitmq.wrapping import WrappingServices
from django_outbox.wire.amqp_frames import raw_properties
from django_outbox.wire.amqp_properties import RawProperties, parse_properties

_NAME: Final = "django_outbox consumer"
#: How long acks are gathered, in seconds, unless half of the prefetch waits for them.
_GATHER: Final = 0.01
_ANSWER_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as the broker handed it over."""

    subscription: Subscription = field(repr=False)
    tag: int
    queue: str
    exchange: str
    routing_key: str
    redelivered: bool
    properties: RawProperties
    body: bytes = field(repr=False)

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's headers."""
        return self.properties.headers

    def ack(self) -> None:
        """Say that it is done with. Without effect where the connection has ended."""
        self.subscription.ack(self.tag)

    def ack_for_sure(self) -> bool:
        """Acknowledge and wait until the broker has taken note. False: it may deliver it again."""
        return self.subscription.ack_for_sure(self.tag)

    def reject(self) -> None:
        """Have the broker put it into the queue's dead-letter exchange, as it is."""
        self.subscription.reject(self.tag)


class Subscription:
    """One connection that receives from queues. Connects as soon as it is made; ends once."""

    def __init__(
        self,
        options: ConnectionOptions,
        queues: Sequence[str],
        *,
        prefetch: int,
        needed_exchanges: Sequence[str] = (),
        needed_queues: Sequence[str] = (),
    ) -> None:
        """Raises ``OSError`` or ``ssl.SSLError`` where a TLS file cannot be used.

        ``prefetch`` counts per queue. What is needed is looked for before anything is received.
        """
        self.missing = ""
        """What is not there or not allowed, in the broker's words. Empty: nothing is known to be."""
        self._queues = queues
        self._prefetch = prefetch
        self._urgent = max(prefetch // 2, 1)
        self._needed = [("exchange", name) for name in needed_exchanges]
        self._needed += [("queue", name) for name in (*needed_queues, *queues)]
        self._deliveries: SimpleQueue[Delivery | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the window and the flag
        self._window = AckWindow()
        self._is_flush_ordered = False
        self._is_stopping = False
        self._has_begun = threading.Event()
        # What follows belongs to the I/O thread.
        self._connection: Any = None
        self._channel: Any = None
        self._consumer_tags: list[str] = []
        self._link = Link(options, _NAME, self, WrappingServices)
        self._link.start()

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended: a new subscription is needed."""
        return self._link.is_over

    @property
    def why_over(self) -> str:
        """How it ended; empty while it lasts."""
        return self._link.ending.reason if self._link.ending else ""

    @property
    def was_receiving(self) -> bool:
        """Whether everything needed was there and the broker has begun to deliver."""
        return self._has_begun.is_set()

    @property
    def unacknowledged(self) -> int:
        """How many deliveries the broker still counts as ours."""
        with self._lock:
            return len(self._window)

    def take(self, limit: int, timeout: float, linger: float = 0.0) -> list[Delivery]:
        """The next deliveries, at most ``limit``; none where nothing came within ``timeout`` seconds.

        With ``linger``, waits that many seconds for more once the first is there.
        """
        taken: list[Delivery] = []
        until = time.monotonic() + timeout
        while len(taken) < limit:
            wait = until - time.monotonic()
            try:
                # A burst is taken without looking at the clock's last microseconds.
                delivery = (
                    self._deliveries.get(timeout=wait)
                    if wait > 0
                    else self._deliveries.get_nowait()
                )
            except Empty:
                break
            if delivery is None:
                break
            taken.append(delivery)
            if len(taken) == 1:
                until = time.monotonic() + linger
        return taken

    def ack(self, tag: int) -> None:
        """Say that a delivery is done with; acks of a few milliseconds are sent together.

        Each wakes the I/O thread, which then takes the interpreter from the one that handles.
        """
        with self._lock:
            is_urgent = self._window.done(tag) == self._urgent
            ordered, self._is_flush_ordered = self._is_flush_ordered, True
        if is_urgent:
            self._link.call(self._flush)
        elif not ordered:
            self._link.call(self._flush_soon)

    def ack_for_sure(self, tag: int, timeout: float = _ANSWER_TIMEOUT) -> bool:
        """Acknowledge a delivery and wait until the broker has taken note, at most ``timeout`` seconds.

        AMQP does not confirm acks, but a broker answers what comes after one on the same channel.
        """
        noted = threading.Event()
        with self._lock:
            self._window.done(tag)
        return self._link.call(partial(self._flush_and_ask, noted)) and noted.wait(timeout)

    def reject(self, tag: int) -> None:
        """Reject a delivery without requeueing it."""
        self._link.call(partial(self._reject, tag))

    def stop(self) -> None:
        """Receive nothing more; what was received can still be acknowledged."""
        self._is_stopping = True
        self._link.call(self._cancel)

    def close(self) -> None:
        """Send the acks that are due and end. The broker delivers the rest again."""
        self._is_stopping = True
        self._link.call(self._flush)
        self._link.close()

    # The link's listener. From here on: in the I/O thread only.

    def opened(self, connection: Any) -> None:
        """The connection is there: look for what is needed."""
        self._connection = connection
        channel = connection.channel(on_open_callback=self._check)
        channel.add_on_close_callback(self._on_check_closed)

    def blocked(self, reason: str) -> None:
        """Nothing: this connection does not publish, so the broker goes on reading its acks."""

    def unblocked(self) -> None:
        """Nothing, as above."""

    def ended(self, ending: Ending) -> None:
        """Wake whoever waits for a delivery."""
        self._deliveries.put(None)

    def _check(self, channel: Any) -> None:
        if not self._needed:
            uninstrumented(self._connection.channel(on_open_callback=self._consume))
            channel.close()
            return
        kind, name = self._needed.pop(0)
        ask = channel.exchange_declare if kind == "exchange" else channel.queue_declare
        ask(name, passive=True, callback=lambda _: self._check(channel))

    def _on_check_closed(self, channel: Any, error: BaseException) -> None:
        if isinstance(error, exceptions.ChannelClosedByBroker):
            self.missing = reply(error)
            self._link.cut(Ending(End.LOST, self.missing, error.reply_code))

    def _consume(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_closed)
        channel.add_on_cancel_callback(self._on_cancelled)
        channel.basic_qos(prefetch_count=self._prefetch, callback=self._subscribe)

    def _subscribe(self, frame: Any) -> None:
        for queue in self._queues:
            tag = self._channel.basic_consume(
                queue, partial(self._on_message, queue), callback=self._on_subscribed
            )
            self._consumer_tags.append(tag)
        if self._is_stopping:
            self._cancel()

    def _on_subscribed(self, frame: Any) -> None:
        self._has_begun.set()

    def _on_message(
        self, queue: str, channel: Any, method: Any, properties: Any, body: bytes
    ) -> None:
        with self._lock:
            self._window.received(method.delivery_tag)
        self._deliveries.put(
            Delivery(
                self,
                method.delivery_tag,
                queue,
                method.exchange,
                method.routing_key,
                bool(method.redelivered),
                parse_properties(raw_properties(properties)),
                body,
            )
        )

    def _on_cancelled(self, frame: Any) -> None:
        reason = "the broker cancelled the consumer: its queue was deleted or has moved"
        self._link.cut(Ending(End.LOST, reason))

    def _on_closed(self, channel: Any, error: BaseException) -> None:
        if isinstance(error, exceptions.ChannelClosedByBroker):
            reason = f"the broker closed the channel: {reply(error)}"
            self._link.cut(Ending(End.LOST, reason, error.reply_code))

    def _flush_soon(self) -> None:
        self._link.call_later(_GATHER, self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._is_flush_ordered = False
            acks = self._window.take()
        # On a channel that is closing, acks are void: the broker delivers again.
        with suppress(exceptions.AMQPError):
            for tag, multiple in acks:
                self._channel.basic_ack(tag, multiple)

    def _flush_and_ask(self, noted: threading.Event) -> None:
        self._flush()
        with suppress(exceptions.AMQPError):
            self._channel.basic_qos(prefetch_count=self._prefetch, callback=lambda _: noted.set())

    def _reject(self, tag: int) -> None:
        with self._lock:
            self._window.gone(tag)
        with suppress(exceptions.AMQPError):
            self._channel.basic_reject(tag, requeue=False)

    def _cancel(self) -> None:
        with suppress(exceptions.AMQPError):
            for consumer_tag in self._consumer_tags:
                self._channel.basic_cancel(consumer_tag)
        self._consumer_tags.clear()
