"""One relay process draining PostgreSQL against pika's own limit, in alternating runs.

    python -m tests.benchmarks.bench_relay [--messages 20000] [--runs 5] [--only classic quorum …]

The limit is pika's own pipelined confirms at the same batch size, two batches under way, without any
database (tests/benchmarks/limit_pika.py). The relay is a process of its own that drains the table as
``outbox_relay --once`` does, timed by its own clock from its first claim to its last settle, its
connection to the broker included. Prints the median ratio of neighbouring runs, and their spread:

- ``classic``, ``quorum``: the relay over the limit, on a queue of that kind
- ``strict``: 1,000 aggregates in strict order over no aggregates
- ``published``: with 1,000,000 published rows in the table over without
- ``pending``: the first of 1,000,000 pending rows over all of 10,000
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection
from django.test.utils import setup_databases, teardown_databases

from tests.benchmarks.draining import drain
from tests.benchmarks.limit_pika import limit_rate
from tests.support import services
from tests.support.children import Child
from tests.support.rabbitmq import Broker
from tests.support.relay_children import rabbitmq_outbox

TABLE = "django_outbox_outboxmessage"
COMPARISONS = ("classic", "quorum", "strict", "published", "pending")
_BODY = json.dumps({"invoice_id": 123456, "note": "x" * 264})


def fill(count: int, *, aggregates: int = 0, status: str = "pending") -> None:
    """Write rows with bodies of 300 bytes past the producer, in one statement."""
    kind, key = ("'t'", f"(n %% {aggregates})::text") if aggregates else ("''", "''")
    published = "now()" if status == "published" else "NULL"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {TABLE} (message_id, topic, schema_version, aggregate_type, aggregate_id,
                payload, headers, size, status, published_at, last_error)
            SELECT gen_random_uuid(), 'invoice.issued', 1, {kind}, {key}, %s, '{{}}', 302,
                '{status}', {published}, ''
            FROM generate_series(1, %s) AS n
            """,
            [_BODY, count],
        )


def prepare(count: int, *, aggregates: int = 0, published: int = 0) -> None:
    """An outbox with as many pending rows, beside published ones."""
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLE}")
    if published:
        fill(published, status="published")
    fill(count, aggregates=aggregates)
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM ANALYZE {TABLE}")
        cursor.execute("CHECKPOINT")


def drain_rate(broker: Broker, kind: str, batch: int, most: int) -> float:
    """Messages per second of one relay process; as many as ``most`` go out."""
    exchange = broker.exchange()
    queue = broker.queue(exchange, queue_type=kind)
    outbox = rabbitmq_outbox(broker.url, exchange, BATCH_SIZE=batch)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        with Child(drain, json.dumps(outbox), str(most), str(result)) as child:
            if child.wait() != 0:
                raise SystemExit("the relay failed")
        published, seconds = json.loads(result.read_text())
    assert broker.count(queue) == published
    broker.remove(exchange, queue)
    return float(published / seconds)


def compare(name: str, runs: int, ours: Callable[[], float], other: Callable[[], float]) -> None:
    """Alternate the two after one run of each that does not count; print the ratios."""
    other(), ours()
    first, second = [], []
    for _ in range(runs):
        second.append(other())
        first.append(ours())
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    sys.stdout.write(
        f"{name:10} {statistics.median(first):8,.0f}/s over {statistics.median(second):8,.0f}/s:"
        f" ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})\n"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default=services.AMQP_URL)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of the large tables")
    parser.add_argument("--only", nargs="*", default=COMPARISONS, choices=COMPARISONS)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    count, batch, runs = options.messages, options.batch, options.runs
    broker = Broker(options.url)

    def drained(
        kind: str = "classic", pending: int = count, most: int = count, **table: int
    ) -> float:
        prepare(pending, **table)
        return drain_rate(broker, kind, batch, most)

    def limit(kind: str) -> float:
        return limit_rate(broker, kind, count=count, batch=batch, windows=2)[0]

    few = min(count, 10_000)
    pairs: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "classic": (lambda: drained("classic"), lambda: limit("classic")),
        "quorum": (lambda: drained("quorum"), lambda: limit("quorum")),
        "strict": (lambda: drained(aggregates=1000), drained),
        "published": (lambda: drained(published=options.large), drained),
        "pending": (
            lambda: drained(pending=options.large, most=few),
            lambda: drained(pending=few, most=few),
        ),
    }
    databases = setup_databases(verbosity=0, interactive=False, aliases={"default", "postgresql"})
    try:
        for name in options.only:
            compare(name, runs, *pairs[name])
    finally:
        broker.disconnect()
        connection.close()
        teardown_databases(databases, verbosity=0)


if __name__ == "__main__":
    main()
