"""What pruning costs those who write meanwhile: a writer's insert beside pruners, and alone.

    python -m tests.benchmarks.bench_prune [--settled 200000] [--rounds 5] [--seconds 3]
    TEST_DEFAULT_DATABASE=mysql python -m tests.benchmarks.bench_prune

Each round writes for some seconds alone, and for as long beside two pruners that delete, in turn. Printed
are the ratios of the medians of one ``enqueue`` in a transaction of its own, with the worst twentieth
beside it, and how many rows the pruners have deleted. ``--isolation "repeatable read"`` for the level of
all connections.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import ExitStack

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection, connections, transaction
from django.test.utils import setup_databases, teardown_databases

from django_outbox import enqueue
from django_outbox.models import OutboxMessage
from tests.benchmarks.pruning import prune_on, use_isolation
from tests.support.bulk_rows import fill, text
from tests.support.children import Child

PRUNERS = 2
OLD = "'2020-01-01 00:00:00'"


def inserts(seconds: float) -> list[float]:
    """The seconds that each of the enqueued messages took."""
    took = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.perf_counter()
        with transaction.atomic():
            enqueue("invoice.issued", {"number": len(took)}, aggregate=("invoice", "1"))
        took.append(time.perf_counter() - began)
    return took


def beside_pruners(seconds: float, isolation: str) -> tuple[list[float], int]:
    """The same while pruners work, each a process, and how many rows they have deleted."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(prune_on, isolation)) for _ in range(PRUNERS)]
        for child in children:
            child.wait_to_hear("ready")
        before = settled()
        took = inserts(seconds)
        return took, before - settled()


def settled() -> int:
    """How many rows are left to delete."""
    return OutboxMessage.objects.filter(published_at__year=2020).count()


def worst(took: list[float]) -> float:
    """Nineteen of twenty were quicker."""
    return statistics.quantiles(took, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settled", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--isolation", default="")
    arguments = parser.parse_args()
    made = setup_databases(verbosity=0, interactive=False)
    try:
        use_isolation(arguments.isolation)
        medians, worsts, rows = [], [], 0
        for _ in range(arguments.rounds):
            fill(arguments.settled, text("n"), status="'published'", published_at=OLD)
            alone = inserts(arguments.seconds)
            beside, deleted = beside_pruners(arguments.seconds, arguments.isolation)
            medians.append(statistics.median(beside) / statistics.median(alone))
            worsts.append(worst(beside) / worst(alone))
            rows += deleted
        print(
            f"{connection.vendor}: an insert beside {PRUNERS} pruners takes"
            f" {statistics.median(medians):.2f} times as long as alone (median;"
            f" {min(medians):.2f} to {max(medians):.2f}), the worst twentieth"
            f" {statistics.median(worsts):.2f} times; {rows:,} rows deleted meanwhile"
        )
    finally:
        connections.close_all()
        teardown_databases(made, verbosity=0)


if __name__ == "__main__":
    main()
