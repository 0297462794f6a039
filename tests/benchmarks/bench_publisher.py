"""The RabbitMQ publisher alone against pika's own limit, in alternating runs.

    python -m tests.benchmarks.bench_publisher [--messages 20000] [--batch 500] [--runs 5]

Prints, for each kind of queue and with one and two batches under way, the median rates, the
processor time a message takes, and the ratio of neighbouring runs with its spread.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import threading
import time
from collections import deque

from django.conf import settings

if not settings.configured:
    settings.configure()

from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome
from django_outbox.publishers.rabbitmq import RabbitMQPublisher
from tests.benchmarks.limit_pika import limit_rate, messages
from tests.support import services
from tests.support.rabbitmq import Broker


def publisher_rate(
    broker: Broker, kind: str, *, count: int, batch: int, windows: int
) -> tuple[float, float]:
    """Messages per second, and microseconds of processor time a message."""
    exchange = broker.exchange()
    queue = broker.queue(exchange, queue_type=kind)
    publisher = RabbitMQPublisher("bench", {"URL": broker.url, "EXCHANGE": exchange})
    publisher.publish(messages(1))  # connects
    made = messages(count)
    batches = deque(made[start : start + batch] for start in range(0, count, batch))
    threads = [
        threading.Thread(target=_publish_all, args=(publisher, batches)) for _ in range(windows)
    ]
    began, worked = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, work = time.perf_counter() - began, time.process_time() - worked
    publisher.close()
    assert broker.count(queue) == count + 1
    broker.remove(exchange, queue)
    return count / took, work / count * 1e6


def _publish_all(publisher: RabbitMQPublisher, batches: deque[list[Message]]) -> None:
    while True:
        try:
            batch = batches.popleft()
        except IndexError:
            return
        receipts = publisher.publish(batch)
        assert all(receipt.outcome is Outcome.CONFIRMED for receipt in receipts)


def _medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    rates, work = zip(*runs, strict=True)
    return statistics.median(rates), statistics.median(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default=services.AMQP_URL)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    broker = Broker(options.url)
    for kind in ("classic", "quorum"):
        for windows in (1, 2):
            ours, limits = [], []
            for _ in range(options.runs):
                size = {"count": options.messages, "batch": options.batch, "windows": windows}
                limits.append(limit_rate(broker, kind, **size))
                ours.append(publisher_rate(broker, kind, **size))
            ratios = [our[0] / limit[0] for our, limit in zip(ours, limits, strict=True)]
            (rate, work), (limit, limit_work) = _medians(ours), _medians(limits)
            sys.stdout.write(
                f"{kind:8} {windows} x {options.batch}: publisher {rate:7,.0f}/s {work:3.0f} us,"
                f" pika {limit:7,.0f}/s {limit_work:3.0f} us,"
                f" ratio {statistics.median(ratios):.2f}"
                f" ({min(ratios):.2f} to {max(ratios):.2f})\n"
            )
            sys.stdout.flush()
    broker.disconnect()


if __name__ == "__main__":
    main()
