"""What claiming and settling cost alone, without a broker: ratios within one run.

    python -m tests.benchmarks.bench_claim [--rows 10000] [--batch 500] [--rounds 5]
        [--published 1000000] [--pending 1000000] [--waiting 200000] [--only held,published,…]
    TEST_DEFAULT_DATABASE=mysql python -m tests.benchmarks.bench_claim --rows 5000

``held``: leases against locks held by hand, SELECT … FOR UPDATE SKIP LOCKED and one UPDATE in the same
transaction. ``published``: a table full of published rows against none. ``pending``: a long backlog
against 10,000 rows. ``waiting``: one claim while an aggregate waits behind its first message. The ways
take turns in short rounds where that is possible; printed are medians with their quartiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.conf import settings
from django.db import connection, connections, transaction
from django.test.utils import setup_databases, teardown_databases

from django_outbox.batches import Limits, Published
from django_outbox.databases import Database, database_for
from django_outbox.topics import EVERY_TOPIC, NO_TOPIC
from tests.support.bulk_rows import fill, text

TABLE = "django_outbox_outboxmessage"
AGGREGATES = 1000
COLUMNS = (
    "id, attempts, size, message_id, topic, schema_version, aggregate_type, aggregate_id, sequence,"
    " payload, headers, correlation_id, causation_id, created_at"
)


def limits(batch: int, *, ordered: bool = True) -> Limits:
    return Limits(
        rows=batch,
        bytes=1 << 30,
        lease=timedelta(seconds=60),
        unordered=NO_TOPIC if ordered else EVERY_TOPIC,
    )


def by_leases(
    database: Database, rows: int, batch: int, *, ordered: bool = True, delete: bool = False
) -> None:
    wanted = limits(batch, ordered=ordered)
    while rows > 0:
        claimed = database.claim(wanted, "benchmark")
        assert claimed is not None
        verdicts = {row.row_id: Published() for row in claimed.claimed}
        assert database.settle(claimed.token, verdicts, delete_published=delete).lost == 0
        rows -= len(claimed)


def by_held_locks(database: Database, rows: int, batch: int) -> None:
    """No lease, no order, nothing counted: what a loop written by hand would do."""
    now = "UTC_TIMESTAMP(6)" if database.vendor == "mysql" else "CURRENT_TIMESTAMP"
    lock = "" if database.vendor == "sqlite" else "FOR UPDATE SKIP LOCKED"
    while rows > 0:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {COLUMNS} FROM {TABLE} WHERE status = 'pending' AND available_at <= {now}"
                f" ORDER BY available_at, id LIMIT {batch} {lock}"
            )
            ids = [row[0] for row in cursor.fetchall()]
            places = ", ".join(map(str, ids))
            cursor.execute(
                f"UPDATE {TABLE} SET status = 'published', published_at = {now}"
                f" WHERE id IN ({places})"
            )
        rows -= len(ids)


def empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {TABLE}" if connection.vendor == "sqlite" else f"TRUNCATE {TABLE}"
        )


def refresh() -> None:
    """Let the database tidy up before the clock runs, as it would between bursts."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"VACUUM ANALYZE {TABLE}")
        elif connection.vendor == "mysql":
            cursor.execute(f"ANALYZE TABLE {TABLE}")
            cursor.fetchall()


def timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def show(what: str, values: list[float], form: str) -> None:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    print(f"{what:<62} {form.format(middle)}  ({form.format(low)} to {form.format(high)})")


def compare(
    rounds: int, rows: int, ways: dict[str, Callable[[], None]], prepare: Callable[[], None]
) -> None:
    """Let the ways take turns; the first is what the others are compared with."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        names = list(ways)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            prepare()
            rates[name].append(rows / timed(ways[name]))
    first = next(iter(ways))
    for name, values in rates.items():
        show(f"{name}, rows/s", values, "{:,.0f}")
        if name != first:
            ratios = [mine / theirs for mine, theirs in zip(values, rates[first], strict=True)]
            show("  as a share", ratios, "{:.2f}")


def fresh(rows: int) -> None:
    empty()
    fill(rows, text(f"n % {AGGREGATES}"))
    refresh()


def bench_held(database: Database, options: argparse.Namespace) -> None:
    rows, batch = options.rows, options.batch
    ways = {
        "held locks, by hand": lambda: by_held_locks(database, rows, batch),
        "leases in order": lambda: by_leases(database, rows, batch),
        "leases without order": lambda: by_leases(database, rows, batch, ordered=False),
        "leases in order, deleted when published": lambda: by_leases(
            database, rows, batch, delete=True
        ),
    }
    compare(options.rounds, rows, ways, lambda: fresh(rows))


def bench_table(
    database: Database,
    options: argparse.Namespace,
    names: tuple[str, str],
    small: Callable[[], None],
    large: Callable[[], None],
) -> None:
    """The same work on a small and on a large table, the small one before and after the large."""

    def rates(prepare: Callable[[], None]) -> list[float]:
        prepare()
        found = []
        for _ in range(options.rounds):
            seconds = timed(lambda: by_leases(database, options.rows, options.batch, delete=True))
            found.append(options.rows / seconds)
            fill(options.rows, text(f"n % {AGGREGATES}"))
        return found

    before, many, after = rates(small), rates(large), rates(small)
    show(f"{names[0]}, rows/s", before + after, "{:,.0f}")
    show(f"{names[1]}, rows/s", many, "{:,.0f}")
    reference = statistics.median(before + after)
    show("  as a share", [rate / reference for rate in many], "{:.2f}")


def bench_published(database: Database, options: argparse.Namespace) -> None:
    now = "UTC_TIMESTAMP(6)" if database.vendor == "mysql" else "CURRENT_TIMESTAMP"

    def full() -> None:
        empty()
        fill(options.published, text("n"), status="'published'", published_at=now)
        fill(options.rows, text(f"n % {AGGREGATES}"))
        refresh()

    names = ("no published rows", f"{options.published:,} published rows")
    bench_table(database, options, names, lambda: fresh(options.rows), full)


def bench_pending(database: Database, options: argparse.Namespace) -> None:
    names = (f"{options.rows:,} pending rows", f"{options.pending:,} pending rows")
    bench_table(
        database, options, names, lambda: fresh(options.rows), lambda: fresh(options.pending)
    )


def bench_waiting(database: Database, options: argparse.Namespace) -> None:
    later = "'2999-01-01 00:00:00'"

    def milliseconds() -> list[float]:
        found = []
        for _ in range(options.rounds):
            fill(50, text("n + 1000000"))
            refresh()
            found.append(1000 * timed(lambda: by_leases(database, 50, options.batch, delete=True)))
        return found

    empty()
    fill(2000, text("n"), attempts="1", lease_token=f"'{'0' * 31}1'", lease_expires_at=later)
    show("50 rows, 2,000 in flight, ms", milliseconds(), "{:.1f}")
    fill(1, "'stuck'", attempts="1", available_at=later)
    fill(options.waiting, "'stuck'")
    what = f"the same, {options.waiting:,} waiting behind one, ms"
    show(what, milliseconds(), "{:.1f}")


BENCHMARKS = {
    "held": bench_held,
    "published": bench_published,
    "pending": bench_pending,
    "waiting": bench_waiting,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="rows drained in one round")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--published", type=int, default=1_000_000)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=200_000)
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    options = parser.parse_args()
    aliases = {"default", settings.TEST_DEFAULT_DATABASE}
    made = setup_databases(verbosity=0, interactive=False, aliases=aliases)
    try:
        database = database_for("default")
        print(f"{database.vendor}, batches of {options.batch}, medians (quartiles)")
        for name in options.only.split(","):
            BENCHMARKS[name](database, options)
    finally:
        connections.close_all()
        teardown_databases(made, verbosity=0)


if __name__ == "__main__":
    main()
