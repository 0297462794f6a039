"""What the inbox costs on PostgreSQL: process_once against the same two statements by hand.

    python -m tests.benchmarks.bench_inbox [--messages 50] [--rounds 40] [--batch 100]
        [--prepared] [--no-sync]

One transaction a message: the inbox row, and an UPDATE as the effect. The ways take turns in short
rounds, so that a machine that slows down slows all of them; printed are the medians of the rates, and
the median of the ratios within a round with its quartiles.

``through Django``: the same two statements by hand, but in ``atomic()`` and with Django's cursors.

By hand, psycopg prepares a statement when it has seen it five times. Django turns that off unless it is
asked for: ``--prepared`` sets ``server_side_binding`` and ``prepare_threshold`` in ``OPTIONS``. ``--no-sync`` turns synchronous_commit off
for all of them: no commit waits for the disk, and what is left is the work itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import django
import psycopg

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection, transaction
from django.db.models import F
from django.test.utils import setup_databases, teardown_databases

from django_outbox.consumers import Consumer, Processed, process_once
from django_outbox.consumers.bulk import process_batch
from django_outbox.messages import Message
from tests.testapp.models import Balance

ACCOUNTS = 100
INSERT = """
INSERT INTO django_outbox_processedmessage
    (consumer, message_id, topic, aggregate_type, aggregate_id, sequence)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (consumer, message_id) DO NOTHING
"""
UPDATE = "UPDATE testapp_balance SET amount = amount + 1 WHERE account = %s"


def account(message: Message) -> str:
    return message.aggregate_id


def update(message: Message) -> None:
    """The effect as raw SQL: what is compared is the inbox, not the ORM."""
    with connection.cursor() as cursor:
        cursor.execute(UPDATE, [account(message)])


def update_by_orm(message: Message) -> None:
    Balance.objects.filter(account=account(message)).update(amount=F("amount") + 1)


def update_all(messages: list[Message]) -> None:
    accounts = [account(message) for message in messages]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE testapp_balance SET amount = amount + n FROM"
            " (SELECT account, count(*) n FROM unnest(%s::text[]) account GROUP BY 1) counted"
            " WHERE testapp_balance.account = counted.account",
            [accounts],
        )


def row_of(message: Message) -> tuple[Any, ...]:
    return (
        "ledger",
        message.id,
        message.topic,
        message.aggregate_type,
        message.aggregate_id,
        message.sequence,
    )


def through_django(messages: list[Message]) -> None:
    for message in messages:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(INSERT, row_of(message))
            if cursor.rowcount == 1:
                update(message)


def by_hand(messages: list[Message], hand: psycopg.Connection[Any]) -> None:
    with hand.cursor() as cursor:
        for message in messages:
            with hand.transaction():
                cursor.execute(INSERT, row_of(message))
                if cursor.rowcount == 1:
                    cursor.execute(UPDATE, (account(message),))


def one_by_one(messages: list[Message], consumer: Consumer) -> None:
    for message in messages:
        assert process_once(consumer, message) is Processed.HANDLED


def in_batches(messages: list[Message], consumer: Consumer) -> None:
    happened = process_batch(consumer, messages, lambda *failure: None)
    assert happened == [Processed.HANDLED] * len(messages)


def rate(work: Callable[[list[Message]], None], count: int) -> float:
    messages = [
        Message(
            id=uuid4(),
            topic="invoice.issued",
            body="{}",
            aggregate_type="shop.invoice",
            aggregate_id=f"account {number % ACCOUNTS}",
            sequence=number,
        )
        for number in range(count)
    ]
    began = time.perf_counter()
    work(messages)
    return count / (time.perf_counter() - began)


def compare(count: int, rounds: int, batch: int, *, sync: bool) -> None:
    settings = connection.settings_dict
    with psycopg.connect(
        host=settings["HOST"],
        port=settings["PORT"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        dbname=settings["NAME"],
    ) as hand:
        hand.autocommit = True
        if not sync:
            hand.execute("SET synchronous_commit = off")
            with connection.cursor() as cursor:
                cursor.execute("SET synchronous_commit = off")
        ways: dict[str, tuple[Callable[[list[Message]], None], int]] = {
            "by hand": (lambda messages: by_hand(messages, hand), 1),
            "through Django": (through_django, 1),
            "process_once": (
                lambda messages: one_by_one(messages, Consumer(name="ledger", handler=update)),
                1,
            ),
            "process_once, effect by the ORM": (
                lambda messages: one_by_one(
                    messages, Consumer(name="ledger", handler=update_by_orm)
                ),
                1,
            ),
            f"batches of {batch}": (
                lambda messages: in_batches(
                    messages, Consumer(name="ledger", handler=update_all, batch=batch)
                ),
                10,
            ),
        }
        for work, _ in ways.values():
            rate(work, 50)  # connects, plans
        rates = [
            {name: rate(work, count * more) for name, (work, more) in ways.items()}
            for _ in range(rounds)
        ]
    report(rates, "by hand", ["through Django", "process_once", "process_once, effect by the ORM"])
    report(rates, "through Django", ["process_once"])
    report(rates, "process_once", [f"batches of {batch}"])


def report(rates: list[dict[str, float]], base: str, others: list[str]) -> None:
    print(f"{base}: {statistics.median(r[base] for r in rates):,.0f} messages/s")
    for name in others:
        low, middle, high = statistics.quantiles([r[name] / r[base] for r in rates], n=4)
        print(
            f"  {name}: {statistics.median(r[name] for r in rates):,.0f} messages/s,"
            f" {middle:.2f} of it (quartiles {low:.2f} and {high:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--prepared", action="store_true")
    parser.add_argument("--no-sync", action="store_true")
    options = parser.parse_args()
    if options.prepared:
        connection.settings_dict["OPTIONS"].update(server_side_binding=True, prepare_threshold=5)
    databases = setup_databases(verbosity=0, interactive=False, aliases={"default", "postgresql"})
    try:
        Balance.objects.bulk_create(
            [Balance(account=f"account {number}") for number in range(ACCOUNTS)]
        )
        compare(options.messages, options.rounds, options.batch, sync=not options.no_sync)
    finally:
        connection.close()
        teardown_databases(databases, verbosity=0)


if __name__ == "__main__":
    main()
