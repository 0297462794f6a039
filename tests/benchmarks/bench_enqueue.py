"""What an event costs its business transaction on PostgreSQL, in short rounds that take turns.

    python -m tests.benchmarks.bench_enqueue [--transactions 100] [--rounds 40] [--many 10000]
                                             [--seconds 5] [--writers 16] [--no-sync]

- *enqueue* over *by hand*: the time that each adds to a transaction that saves an invoice. By hand is
  what enqueue is for, without its checks: a UUID, ``json.dumps``, and the same row by one INSERT.
- *enqueue_many* over *unnest*: rows a second, against one INSERT of prepared arrays.
- *notify* over *poll*: transactions a second of 16 writers, each a process, beside one relay process.

Printed are medians, and the ratio within a round with its quartiles: a machine that slows down slows
all of them. ``--no-sync`` turns synchronous_commit off: no commit waits for the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection, transaction
from django.test.utils import setup_databases, teardown_databases

from django_outbox import Event, enqueue, enqueue_many
from tests.benchmarks.writing import PAYLOAD, writing_rate
from tests.testapp.models import Invoice

COLUMNS = {
    "message_id": "uuid",
    "topic": "text",
    "schema_version": "smallint",
    "aggregate_type": "text",
    "aggregate_id": "text",
    "sequence": "bigint",
    "payload": "jsonb",
    "headers": "jsonb",
    "correlation_id": "text",
    "causation_id": "text",
    "size": "integer",
}
NAMES = ", ".join(COLUMNS)
INSERT = (
    f"INSERT INTO django_outbox_outboxmessage ({NAMES}, available_at)"
    f" VALUES ({', '.join(['%s'] * len(COLUMNS))}, statement_timestamp())"
)
UNNEST = (
    f"INSERT INTO django_outbox_outboxmessage ({NAMES}, available_at)"
    f" SELECT {NAMES}, statement_timestamp()"
    f" FROM unnest({', '.join(f'%s::{kind}[]' for kind in COLUMNS.values())}) AS new ({NAMES})"
)


def row() -> tuple[Any, ...]:
    text = json.dumps(PAYLOAD)
    size = len(text) + 2
    return (uuid4(), "invoice.issued", 1, "invoice", "4711", 3, text, "{}", "", "", size)


def nothing() -> None:
    pass


def by_hand() -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, row())


def by_enqueue() -> None:
    enqueue("invoice.issued", PAYLOAD, aggregate=("invoice", 4711), sequence=3)


def typical_time(work: Callable[[], None], transactions: int) -> float:
    """Microseconds of a transaction that saves an invoice and does the work: the median."""
    times = []
    for _ in range(transactions):
        began = time.perf_counter()
        with transaction.atomic():
            Invoice.objects.create(number="2026-1")
            work()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def compare_one(transactions: int, rounds: int) -> None:
    ways = (nothing, by_hand, by_enqueue)
    for work in ways:
        typical_time(work, 50)  # connects, and fills every cache there is
    times = [
        {work: typical_time(work, transactions) for work in ways[turn % 3 :] + ways[: turn % 3]}
        for turn in range(rounds)
    ]
    alone = statistics.median(each[nothing] for each in times)
    hand, ours = (statistics.median(each[way] for each in times) - alone for way in ways[1:])
    print(
        f"a transaction: {alone:,.0f} µs; by hand {hand:,.0f} µs more, enqueue {ours:,.0f} µs more"
    )
    report(
        "enqueue / by hand, added time",
        [(each[by_enqueue] - each[nothing]) / (each[by_hand] - each[nothing]) for each in times],
    )


def unnest_rate(count: int) -> float:
    columns = [list(values) for values in zip(*(row() for _ in range(count)), strict=True)]
    began = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(UNNEST, columns)
    return count / (time.perf_counter() - began)


def enqueue_many_rate(count: int) -> float:
    events = [
        Event("invoice.issued", PAYLOAD, aggregate=("invoice", 4711), sequence=3)
        for _ in range(count)
    ]
    began = time.perf_counter()
    with transaction.atomic():
        enqueue_many(events)
    return count / (time.perf_counter() - began)


def compare_many(count: int, rounds: int) -> None:
    unnest_rate(100), enqueue_many_rate(100)
    rates = [(unnest_rate(count), enqueue_many_rate(count)) for _ in range(rounds)]
    raw, ours = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"unnest {raw:,.0f} rows/s, enqueue_many {ours:,.0f} rows/s")
    report("enqueue_many / unnest, rate", [ours / raw for raw, ours in rates])


def compare_writers(writers: int, seconds: float, rounds: int) -> None:
    rates = []
    for turn in range(rounds):
        order = ("poll", "notify") if turn % 2 else ("notify", "poll")
        rates.append({wakeup: writing_rate(wakeup, writers, seconds) for wakeup in order})
    poll, notify = (statistics.median(each[name] for each in rates) for name in ("poll", "notify"))
    print(f"{writers} writers: poll {poll:,.0f} transactions/s, notify {notify:,.0f}")
    report("notify / poll, rate", [each["notify"] / each["poll"] for each in rates])


def report(name: str, ratios: list[float]) -> None:
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"  {name}: {middle:.2f} (quartiles {low:.2f} and {high:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transactions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--writers", type=int, default=16, help="0: leave this part out")
    parser.add_argument("--no-sync", action="store_true")
    options = parser.parse_args()
    databases = setup_databases(verbosity=0, interactive=False, aliases={"default", "postgresql"})
    try:
        with connection.cursor() as cursor:
            if options.no_sync:
                cursor.execute("SET synchronous_commit = off")
        compare_one(options.transactions, options.rounds)
        compare_many(options.many, max(5, options.rounds // 4))
        if options.writers:
            compare_writers(options.writers, options.seconds, max(4, options.rounds // 8))
    finally:
        connection.close()
        teardown_databases(databases, verbosity=0)


if __name__ == "__main__":
    main()
