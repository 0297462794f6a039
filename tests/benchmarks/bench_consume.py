"""What consumers handle a second: outbox_consume against a Celery worker, batches against one by one.

    python -m tests.benchmarks.bench_consume [--messages 3000] [--runs 5] [--batched 30000]
        [--processes 2] [--only celery batches]

The work is the inbox row and one UPDATE, a transaction a message. The queue is filled before the
process starts; the rate is that of the inbox rows, from the first to the last, by the database's clock,
so neither the start nor the stop of a process counts. Connections to the database are kept for both:
unless told so by CELERY_DB_REUSE_MAX, Celery makes a new one for every task. Prints medians of the rates,
and the median of the ratios of neighbouring runs with their spread:

- ``celery``: outbox_consume over a Celery worker with the mixin, each with one process that handles, and
  again with ``--processes`` of each (two outbox_consume over a worker with a pool of two)
- ``batches``: batches of 100 with an effect in one statement over one by one, both by outbox_consume
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection
from django.db.models import Max, Min
from django.test.utils import setup_databases, teardown_databases

from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from django_outbox.publishers.base import Outcome
from django_outbox.publishers.celery import CeleryPublisher
from django_outbox.publishers.rabbitmq import RabbitMQPublisher
from tests.support import services
from tests.support.plants import Plant
from tests.support.rabbitmq import Broker
from tests.support.workers import Workers
from tests.testapp.models import Balance
from tests.transports.consumers import ACCOUNTS

ROUND = 500
COMPARISONS = ("celery", "batches")
#: The broker hands over as many in advance to either of them.
PREFETCH = 100
Start = Callable[[Workers, Plant], None]


def outbox_consume(processes: int) -> Start:
    def start(workers: Workers, plant: Plant) -> None:
        for _ in range(processes):
            workers.outbox_consume(
                plant.outbox,
                *("--queue", plant.queue, "--prefetch", str(PREFETCH)),
                CHILD_LOG="ERROR",
            )

    return start


def celery(processes: int) -> Start:
    def start(workers: Workers, plant: Plant) -> None:
        options = {
            "--concurrency": processes,
            "--prefetch-multiplier": PREFETCH,
            "--loglevel": "WARNING",
        }
        arguments = [str(each) for option in options.items() for each in option]
        workers.celery(
            plant.outbox,
            plant.broker.url,
            plant.queue,
            "--without-heartbeat",
            *arguments,
            ready="",
            CHILD_LOG="ERROR",
            CHILD_DB_REUSE_MAX="1000000",
        )

    return start


def messages(count: int, topic: str) -> Iterator[list[Message]]:
    """Rounds of messages whose effects are spread over the accounts."""
    for first in range(0, count, ROUND):
        yield [
            Message(
                id=uuid4(),
                topic=topic,
                body="{}",
                aggregate_type="shop.invoice",
                aggregate_id=f"account {number % ACCOUNTS}",
            )
            for number in range(first, min(first + ROUND, count))
        ]


def fill(plant: Plant, count: int, topic: str, *, as_tasks: bool) -> None:
    publisher = (
        CeleryPublisher(
            "bench", {"URL": plant.broker.url, "QUEUE": plant.queue, "TASKS": {"#": "bench.update"}}
        )
        if as_tasks
        else RabbitMQPublisher("bench", {"URL": plant.broker.url, "EXCHANGE": plant.exchange})
    )
    for round_ in messages(count, topic):
        assert all(each.outcome is Outcome.CONFIRMED for each in publisher.publish(round_))
    publisher.close()


@contextmanager
def a_plant(broker: Broker) -> Iterator[Plant]:
    plant = Plant(broker)
    try:
        yield plant
    finally:
        plant.remove()


def rate(broker: Broker, count: int, topic: str, start: Start, *, as_tasks: bool = False) -> float:
    """Messages a second, from the first inbox row to the last."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_outbox_processedmessage")
    with a_plant(broker) as plant, tempfile.TemporaryDirectory() as folder:
        fill(plant, count, topic, as_tasks=as_tasks)
        with Workers(Path(folder)) as workers:
            start(workers, plant)
            while ProcessedMessage.objects.count() < count:
                time.sleep(0.2)
    span = ProcessedMessage.objects.aggregate(first=Min("processed_at"), last=Max("processed_at"))
    return (count - 1) / (span["last"] - span["first"]).total_seconds()


def compare(name: str, runs: int, ours: Callable[[], float], other: Callable[[], float]) -> None:
    """Alternate the two; print the medians and the ratios of neighbours."""
    pairs = [(ours(), other()) for _ in range(runs)]
    ratios = [a / b for a, b in pairs]
    first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
    sys.stdout.write(
        f"{name:34} {first:8,.0f}/s over {second:8,.0f}/s:"
        f" ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})\n"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--batched", type=int, default=30_000, help="messages of a run in batches")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=COMPARISONS, choices=COMPARISONS)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    broker = Broker(services.AMQP_URL)

    def consumed(
        processes: int = 1, count: int = options.messages, topic: str = "bench.one"
    ) -> float:
        return rate(broker, count, topic, outbox_consume(processes))

    def tasks(processes: int) -> float:
        return rate(broker, options.messages, "bench.one", celery(processes), as_tasks=True)

    databases = setup_databases(verbosity=0, interactive=False, aliases={"default", "postgresql"})
    try:
        Balance.objects.bulk_create(Balance(account=f"account {n}") for n in range(ACCOUNTS))
        if "celery" in options.only:
            for processes in sorted({1, options.processes}):
                name = f"celery, processes: {processes}"
                compare(
                    name,
                    options.runs,
                    lambda n=processes: consumed(n),
                    lambda n=processes: tasks(n),
                )
        if "batches" in options.only:
            compare(
                "batches of 100 over one by one",
                options.runs,
                lambda: consumed(count=options.batched, topic="bench.many"),
                consumed,
            )
    finally:
        broker.disconnect()
        connection.close()
        teardown_databases(databases, verbosity=0)


if __name__ == "__main__":
    main()
