"""The limit: what pika itself reaches on this machine, with pipelined confirms and no database.

    python -m tests.benchmarks.limit_pika --queue quorum --messages 20000 --batch 500 --windows 2

A plain ``SelectConnection`` in the main thread: persistent, mandatory, confirmed, 300-byte bodies, the
same properties and headers as the outbox writes. ``--windows`` batches are under way at once; when one
is wholly confirmed the next goes out. Prints messages per second, nothing else.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pika
from pika import spec

from django_outbox.messages import Message
from django_outbox.wire.amqp import AmqpProperties, to_amqp
from tests.support import services
from tests.support.rabbitmq import Broker

TOPIC = "invoice.issued"
BODY_BYTES = 300


def messages(count: int) -> list[Message]:
    """Messages as a claim hands them over: bodies of 300 bytes, each its own aggregate."""
    now = datetime.now(UTC)
    body = '{"invoice_id": 123456, "note": "%s"}' % ("x" * (BODY_BYTES - 35))
    return [
        Message(
            id=uuid4(),
            topic=TOPIC,
            body=body,
            aggregate_type="billing.invoice",
            aggregate_id=str(number),
            sequence=1,
            source="/billing",
            created_at=now,
        )
        for number in range(count)
    ]


def properties_of(message: Message) -> dict[str, Any]:
    """What ``pika.BasicProperties`` is made with."""
    properties = to_amqp(message)
    return {field.name: getattr(properties, field.name) for field in fields(AmqpProperties)}


class Limit:
    """One run: so many messages in batches, so many batches under way at once."""

    def __init__(
        self, url: str, exchange: str, sent: Sequence[Message], batch: int, windows: int
    ) -> None:
        self._url, self._exchange = url, exchange
        self._batch, self._windows = batch, windows
        self._prepared = deque((properties_of(message), message.body.encode()) for message in sent)
        self._unconfirmed: set[int] = set()
        self._lowest = self._next_tag = 1
        self._waiting: deque[int] = deque()  # of each batch under way, how many are unconfirmed
        self._first_batch = 0  # the number of the oldest batch under way
        self.seconds = self.work = 0.0
        """From the first publish to the last confirm: wall clock, and processor time."""
        self.returned = 0

    def run(self) -> None:
        """Send everything and wait for every confirm."""
        self._connection = pika.SelectConnection(
            pika.URLParameters(self._url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_close_callback=lambda connection, error: connection.ioloop.stop(),
        )
        self._connection.ioloop.start()

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda frame: self._begin())

    def _begin(self) -> None:
        self._began, self._worked = time.perf_counter(), time.process_time()
        for _ in range(self._windows):
            self._send_batch()

    def _send_batch(self) -> None:
        first = self._next_tag
        while self._prepared and self._next_tag - first < self._batch:
            properties, body = self._prepared.popleft()
            self._channel.basic_publish(
                self._exchange, TOPIC, body, pika.BasicProperties(**properties), mandatory=True
            )
            self._next_tag += 1
        if self._next_tag > first:
            self._unconfirmed.update(range(first, self._next_tag))
            self._waiting.append(self._next_tag - first)

    def _on_return(self, *returned: Any) -> None:
        self.returned += 1

    def _on_confirm(self, frame: Any) -> None:
        assert isinstance(frame.method, spec.Basic.Ack), "nacked"
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            for confirmed in range(self._lowest, tag + 1):
                self._confirm(confirmed)
            self._lowest = tag + 1
        else:
            self._confirm(tag)
        while self._waiting and not self._waiting[0]:
            self._waiting.popleft()
            self._first_batch += 1
            self._send_batch()
        if not self._waiting:
            self.seconds = time.perf_counter() - self._began
            self.work = time.process_time() - self._worked
            self._connection.close()

    def _confirm(self, tag: int) -> None:
        if tag in self._unconfirmed:
            self._unconfirmed.discard(tag)
            self._waiting[(tag - 1) // self._batch - self._first_batch] -= 1


def limit_rate(
    broker: Broker, kind: str, *, count: int = 20_000, batch: int = 500, windows: int = 1
) -> tuple[float, float]:
    """Into a fresh queue of this kind (``classic`` or ``quorum``): messages per second, and
    microseconds of processor time a message."""
    exchange = broker.exchange()
    queue = broker.queue(exchange, queue_type=kind)
    run = Limit(broker.url, exchange, messages(count), batch, windows)
    run.run()
    assert run.returned == 0
    broker.remove(exchange, queue)
    return count / run.seconds, run.work / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default=services.AMQP_URL)
    parser.add_argument("--queue", choices=["classic", "quorum"], default="classic")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--windows", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    broker = Broker(options.url)
    rate, _ = limit_rate(
        broker,
        options.queue,
        count=options.messages,
        batch=options.batch,
        windows=options.windows,
    )
    broker.disconnect()
    sys.stdout.write(f"{rate:.0f}\n")


if __name__ == "__main__":
    main()
