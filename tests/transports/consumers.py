"""The consumers of the worker processes."""

from __future__ import annotations

from collections import Counter

from django.db import connection

from django_outbox.consumers import consumer
from django_outbox.messages import Message
from tests.testapp.models import LedgerEntry
from tests.transports.behaviour import act, note


@consumer("invoice.*", name="ledger", max_attempts=3)
def book_invoice(message: Message) -> None:
    act(message)


@consumer("bulk.*", name="bulk", batch=100, max_attempts=3)
def book_in_bulk(messages: list[Message]) -> None:
    for message in messages:
        note("handling", message)
        if message.payload.get("do") == "raise":
            raise ValueError("secret of the payload")
    LedgerEntry.objects.bulk_create(
        LedgerEntry(account="bulk", reference=str(each.id), amount=1) for each in messages
    )


#: How many rows the benchmark's effects are spread over.
ACCOUNTS = 100
_ADD = "UPDATE testapp_balance SET amount = amount + 1 WHERE account = %s"
_ADD_ALL = (
    "UPDATE testapp_balance SET amount = amount + n FROM"
    " unnest(%s::text[], %s::int[]) AS counted (account, n)"
    " WHERE testapp_balance.account = counted.account"
)


@consumer("bench.one", name="bench.one")
def update_one(message: Message) -> None:
    """What tests/benchmarks/bench_consume.py counts: one UPDATE as raw SQL."""
    with connection.cursor() as cursor:
        cursor.execute(_ADD, [message.aggregate_id])


@consumer("bench.many", name="bench.many", batch=100)
def update_many(messages: list[Message]) -> None:
    """The same for many, in one statement."""
    counted = Counter(message.aggregate_id for message in messages)
    with connection.cursor() as cursor:
        cursor.execute(_ADD_ALL, [list(counted), list(counted.values())])
