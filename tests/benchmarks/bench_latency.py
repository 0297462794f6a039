"""From commit to arrival in a queue, on PostgreSQL and RabbitMQ: a relay against the least there could be.

    python -m tests.benchmarks.bench_latency [--messages 200] [--rounds 5] [--ways bare notify poll]

- ``bare``: a process that listens, reads what is pending, publishes it and marks it. The producer sends
  NOTIFY in its transaction. No lease, no order, no retry.
- ``notify``, ``poll``: ``outbox_relay`` with that ``WAKEUP``.

The ways take turns, each a process of its own. A message goes out when the one before has arrived and a
random pause is over, so that whoever waits is asleep. Printed are median and 99th percentile of the time
from the return of COMMIT to the delivery to a consumer, and their ratios to those of ``bare`` within a
round: the median of the rounds, least and most.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import threading
import time
from typing import Any
from uuid import UUID

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

import pika
from django.db import connection, transaction
from django.test.utils import setup_databases, teardown_databases

from django_outbox import enqueue
from tests.benchmarks.waking import TABLE, by_hand, by_relay
from tests.benchmarks.writing import PAYLOAD
from tests.support import services
from tests.support.children import Child
from tests.support.rabbitmq import Broker

WAYS = ("bare", "notify", "poll")
#: Seconds between an arrival and the next commit: long enough for every way to fall asleep.
PAUSE = (0.02, 0.06)
#: Seconds after which a message counts as lost.
PATIENCE = 30


class Arrivals:
    """A consumer of one queue that knows when it was given which message."""

    def __init__(self, url: str, queue: str) -> None:
        self._times: dict[UUID, float] = {}
        self._something_came = threading.Condition()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = self._connection.channel()
        channel.basic_consume(queue, self._note, auto_ack=True)
        self._thread = threading.Thread(target=channel.start_consuming, daemon=True)
        self._thread.start()

    def time_of(self, message_id: UUID) -> float:
        with self._something_came:
            arrived = self._something_came.wait_for(lambda: message_id in self._times, PATIENCE)
            if not arrived:
                raise SystemExit("a message did not arrive")
            return self._times[message_id]

    def close(self) -> None:
        self._connection.add_callback_threadsafe(self._connection.close)
        self._thread.join()

    def _note(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        now = time.monotonic()
        with self._something_came:
            self._times[UUID(properties.message_id)] = now
            self._something_came.notify_all()


def issue(*, notify: bool) -> tuple[UUID, float]:
    """Commit one event; its id, and the time at which COMMIT had returned."""
    with transaction.atomic():
        message = enqueue("a.b", PAYLOAD, aggregate=("invoice", random.randrange(10**9)))
        if notify:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify('bare', '')")
    return message.message_id, time.monotonic()


def latencies(broker: Broker, way: str, count: int) -> list[float]:
    """Milliseconds of as many messages, sorted; the first ten do not count."""
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLE}")
    exchange = broker.exchange()
    queue = broker.queue(exchange)
    arrivals = Arrivals(broker.url, queue)
    arguments = [broker.url, exchange]
    child = Child(by_hand, *arguments) if way == "bare" else Child(by_relay, *arguments, way)
    found = []
    with child:
        child.wait_to_hear("started")
        time.sleep(1)
        for _ in range(count + 10):
            time.sleep(random.uniform(*PAUSE))
            message_id, committed = issue(notify=way == "bare")
            found.append(1000 * (arrivals.time_of(message_id) - committed))
    arrivals.close()
    broker.remove(exchange, queue)
    return sorted(found[10:])


def median(values: list[float]) -> float:
    return statistics.median(values)


def p99(values: list[float]) -> float:
    return values[min(len(values) - 1, int(len(values) * 0.99))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default=services.AMQP_URL)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    broker = Broker(options.url)
    databases = setup_databases(verbosity=0, interactive=False, aliases={"default", "postgresql"})
    try:
        rounds = []
        for turn in range(options.rounds):
            order = [*options.ways[turn % len(options.ways) :], *options.ways][: len(options.ways)]
            rounds.append({way: latencies(broker, way, options.messages) for way in order})
        for way in options.ways:
            together = sorted(value for each in rounds for value in each[way])
            line = f"{way:7} median {median(together):6.1f} ms, p99 {p99(together):6.1f} ms"
            if way != "bare" and "bare" in options.ways:
                for name, of in (("median", median), ("p99", p99)):
                    ratios = [of(each[way]) / of(each["bare"]) for each in rounds]
                    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                    line += f"; {name} over bare {statistics.median(ratios):.2f} ({spread})"
            print(line, flush=True)
    finally:
        broker.disconnect()
        connection.close()
        teardown_databases(databases, verbosity=0)


if __name__ == "__main__":
    main()
