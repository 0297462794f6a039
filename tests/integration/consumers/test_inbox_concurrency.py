"""The same message at two workers at the same moment, on connections of their own."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from django.db import connections, transaction
from django.db.models import F

from django_outbox.consumers import Consumer, Processed, process_once
from django_outbox.messages import Message
from django_outbox.models import AggregateCursor, ProcessedMessage
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.support.threads import PATIENCE, Worker, wait_for
from tests.support.waiting import wait_for_a_waiting_connection
from tests.testapp.models import Balance, LedgerEntry

pytestmark = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class Broken(Exception):
    pass


def book(message: Message) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id), amount=1)


class Gate:
    """A handler that books, then stands still until it is let go; it may fail at the end."""

    def __init__(self, *, fails: bool = False) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self._fails = fails

    def __call__(self, message: Message) -> None:
        book(message)
        self.entered.set()
        wait_for(self.let_go, "the handler is let go")
        if self._fails:
            raise Broken


def start_second(consumer: Consumer, message: Message) -> Worker[Processed]:
    """A second worker, seen waiting for the first where the database can say so."""
    started = threading.Event()

    def second() -> Processed:
        started.set()
        return process_once(consumer, message)

    worker = Worker(second)
    wait_for(started, "the second worker starts")
    wait_for_a_waiting_connection()
    assert worker.is_at_work
    return worker


def test_a_concurrent_duplicate_waits_and_then_skips(database):
    message = received()
    gate = Gate()
    first = Worker(process_once, Consumer(name="ledger", handler=gate), message)
    wait_for(gate.entered, "the first worker handles")
    second = start_second(Consumer(name="ledger", handler=book), message)
    gate.let_go.set()
    assert (first.result(), second.result()) == (Processed.HANDLED, Processed.DUPLICATE)
    assert LedgerEntry.objects.count() == 1


def test_when_the_first_rolls_back_the_second_runs(database):
    message = received()
    gate = Gate(fails=True)
    first = Worker(process_once, Consumer(name="ledger", handler=gate), message)
    wait_for(gate.entered, "the first worker handles")
    second = start_second(Consumer(name="ledger", handler=book), message)
    gate.let_go.set()
    with pytest.raises(Broken):
        first.result()
    assert second.result() is Processed.HANDLED
    assert LedgerEntry.objects.count() == 1
    assert ProcessedMessage.objects.count() == 1


def test_another_message_does_not_wait(database):
    if database.connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    gate = Gate()
    first = Worker(process_once, Consumer(name="ledger", handler=gate), received())
    wait_for(gate.entered, "the first worker handles")
    second = Worker(process_once, Consumer(name="ledger", handler=book), received())
    assert second.result() is Processed.HANDLED
    gate.let_go.set()
    first.result()


def test_every_message_counts_once_whoever_handles_it(database):
    Balance.objects.create(account="sales", amount=0)
    connections["default"].close()
    messages = [received() for _ in range(40)]

    def add(message: Message) -> None:
        Balance.objects.filter(account="sales").update(amount=F("amount") + 1)

    def work(offset: int) -> Counter[Processed]:
        mine = messages[offset:] + messages[:offset]
        consumer = Consumer(name="ledger", handler=add)
        return Counter(process_once(consumer, message) for message in mine)

    workers = [Worker(work, offset) for offset in (0, 10, 20, 30)]
    total = sum((worker.result() for worker in workers), Counter())
    assert total == {Processed.HANDLED: 40, Processed.DUPLICATE: 120}
    assert Balance.objects.get().amount == 40


def test_a_handler_that_the_database_took_back_is_run_again(database):
    if database.connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time, and so no deadlocks")
    for name in ("one", "two"):
        Balance.objects.create(account=name, amount=0)
    connections["default"].close()
    crossing = threading.Barrier(2, timeout=PATIENCE)
    runs: list[str] = []

    def transfer(order: tuple[str, str]) -> Processed:
        first_run = True

        def handle(message: Message) -> None:
            nonlocal first_run
            runs.append(order[0])
            Balance.objects.filter(account=order[0]).update(amount=F("amount") + 1)
            if first_run:
                first_run = False
                crossing.wait()
            Balance.objects.filter(account=order[1]).update(amount=F("amount") + 1)

        return process_once(Consumer(name="ledger", handler=handle), received())

    workers = [Worker(transfer, ("one", "two")), Worker(transfer, ("two", "one"))]
    assert [worker.result() for worker in workers] == [Processed.HANDLED] * 2
    assert list(Balance.objects.values_list("amount", flat=True)) == [2, 2]
    assert len(runs) == 3


def test_messages_of_one_aggregate_take_their_turns_at_the_cursor(database):
    def of(sequence: int) -> Message:
        return received(aggregate_type="shop.invoice", aggregate_id="7", sequence=sequence)

    gate = Gate()
    first = Worker(process_once, Consumer(name="view", handler=gate, drop_stale=True), of(5))
    wait_for(gate.entered, "the first worker handles")
    older = start_second(Consumer(name="view", handler=book, drop_stale=True), of(4))
    gate.let_go.set()
    assert (first.result(), older.result()) == (Processed.HANDLED, Processed.STALE)
    assert AggregateCursor.objects.get().sequence == 5
    assert LedgerEntry.objects.count() == 1


def test_when_the_newer_message_rolls_back_the_older_one_is_not_stale(database):
    def of(sequence: int) -> Message:
        return received(aggregate_type="shop.invoice", aggregate_id="7", sequence=sequence)

    process_once(Consumer(name="view", handler=book, drop_stale=True), of(1))
    connections["default"].close()
    gate = Gate(fails=True)
    first = Worker(process_once, Consumer(name="view", handler=gate, drop_stale=True), of(5))
    wait_for(gate.entered, "the first worker handles")
    older = start_second(Consumer(name="view", handler=book, drop_stale=True), of(4))
    gate.let_go.set()
    with pytest.raises(Broken):
        first.result()
    assert older.result() is Processed.HANDLED
    assert AggregateCursor.objects.get().sequence == 4


def test_an_aggregate_never_moves_backwards_under_concurrency(database):
    applied: list[int] = []

    def apply(message: Message) -> None:
        Balance.objects.update_or_create(account="7", defaults={"amount": message.sequence})
        transaction.on_commit(lambda: applied.append(message.sequence))

    consumer = Consumer(name="view", handler=apply, drop_stale=True)
    messages = [
        received(aggregate_type="shop.invoice", aggregate_id="7", sequence=sequence)
        for sequence in range(1, 31)
    ]
    lanes = [messages[0::3], messages[2::3], messages[1::3][::-1]]
    workers = [
        Worker(lambda lane: [process_once(consumer, each) for each in lane], lane) for lane in lanes
    ]
    for worker in workers:
        worker.result()
    assert Balance.objects.get().amount == 30
    assert AggregateCursor.objects.get().sequence == 30
