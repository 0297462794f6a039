"""The whole chain, killed at random: producer, PostgreSQL, two relays, RabbitMQ, two consumers, PostgreSQL.

At the end every committed event has taken effect exactly once, and no event of a transaction that was
rolled back has taken any.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction

from django_outbox import Event, enqueue_many
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage, ProcessedMessage, Status
from tests.support.plants import Plant, plant
from tests.support.threads import Worker, wait_until
from tests.support.workers import Process, Workers, workers
from tests.testapp.models import Balance, Invoice, LedgerEntry

__all__ = ["plant", "workers"]

#: Amounts that differ from each other, so that a sum that is right by accident is unlikely.
AMOUNT = 1_000_003
AT_ONCE = 20
#: What relays, outbox_consume and Celery workers log when they have begun.
BEGUN = ("The relay is at work", "Connected to RabbitMQ", " succeeded in ")
MANY = 5_000


def produce(count: int) -> dict[str, int]:
    """Commit that many invoices with their events, and roll back as many more in between."""
    committed: dict[str, int] = {}
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        with transaction.atomic():
            issue(numbers)
            transaction.set_rollback(True)
        with transaction.atomic():
            rows = issue(numbers)
        committed |= {str(row.message_id): AMOUNT + n for row, n in zip(rows, numbers, strict=True)}
    return committed


def issue(numbers: range) -> list[OutboxMessage]:
    Invoice.objects.bulk_create(Invoice(number=str(n)) for n in numbers)
    return enqueue_many(Event("invoice.issued", {"amount": AMOUNT + n}) for n in numbers)


def outbox_of(plant: Plant, transport: str) -> dict[str, Any]:
    """Settings of everybody; leases are short, so that the rows of a killed relay come back soon."""
    publisher = plant.outbox["PUBLISHERS"]["default"]
    if transport == "celery":
        publisher = {
            "BACKEND": "django_outbox.publishers.celery.CeleryPublisher",
            "URL": plant.broker.url,
            "QUEUE": plant.queue,
            "TASKS": {"invoice.*": "ledger.book"},
        }
    publisher |= {"SOCKET_TIMEOUT": 1, "STACK_TIMEOUT": 1.5, "CONFIRM_TIMEOUT": 1.5}
    others = {"LEASE": 8, "CONFIRM_TIMEOUT": 1.5, "BATCH_SIZE": 50}
    return {**plant.outbox, **others, "PUBLISHERS": {"default": publisher}}


def start(workers: Workers, plant: Plant, transport: str) -> list[Process]:
    outbox = outbox_of(plant, transport)
    started = [workers.outbox_relay(outbox) for _ in range(2)]
    if transport == "celery":
        started += [workers.celery(outbox, plant.broker.url, plant.queue) for _ in range(2)]
    else:
        started += [workers.outbox_consume(outbox, "--queue", plant.queue) for _ in range(2)]
    return started


class Victim:
    """A process that is killed only after it has begun to work: on a slow machine, too, all go on."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._log_before = 0
        self.kills = 0

    @property
    def may_be_killed(self) -> bool:
        """Whether it has begun, or ended by itself: then somebody has to start it again."""
        if not self._process.is_alive:
            return True
        since_its_start = self._process.text[self._log_before :]
        return any(word in since_its_start for word in BEGUN)

    def kill(self) -> None:
        self._process.kill()
        self._log_before = len(self._process.text)
        self._process.restart()
        self.kills += 1


@contextmanager
def killed_every_second(processes: list[Process], rng: random.Random) -> Iterator[list[Victim]]:
    """Kills one of those at work each second and starts it again, until the block ends."""
    victims = [Victim(process) for process in processes]
    over = threading.Event()

    def kill() -> None:
        while not over.wait(1):
            at_work = [victim for victim in victims if victim.may_be_killed]
            if at_work:
                rng.choice(at_work).kill()

    killer = Worker(kill)
    try:
        yield victims
    finally:
        over.set()
        killer.result()


def assert_exactly_once(plant: Plant, committed: dict[str, int]) -> None:
    assert not OutboxMessage.objects.exclude(status=Status.PUBLISHED).exists()
    recorded = ProcessedMessage.objects.values_list("message_id", flat=True)
    assert sorted(map(str, recorded)) == sorted(committed)
    booked = dict(LedgerEntry.objects.values_list("reference", "amount"))
    assert booked == committed
    assert LedgerEntry.objects.count() == Invoice.objects.count() == len(committed)
    assert Balance.objects.get().amount == sum(committed.values())
    assert plant.broker.count(plant.dead_letter_queue) == 0


@pytest.mark.parametrize("transport", ["celery", "outbox_consume"])
def test_every_event_takes_effect_once_whoever_is_killed(
    database: Database, plant: Plant, workers: Workers, transport: str
) -> None:
    """Each of the four dies once while a message is on its way, and one more by chance."""
    Balance.objects.create(account="sales")
    victims = start(workers, plant, transport)
    rng = random.Random(transport)
    turns = [*rng.sample(range(4), 4), rng.randrange(4)]
    committed: dict[str, int] = {}
    for victim in turns:
        committed |= produce(60)
        wait_until(progress_beyond(len(committed) - 40), "some of them have taken effect")
        victims[victim].restart()
    wait_until(
        lambda: (
            ProcessedMessage.objects.count() == len(committed)
            and not OutboxMessage.objects.exclude(status=Status.PUBLISHED).exists()
        ),
        "every event has taken effect",
        every=0.05,
    )
    assert_exactly_once(plant, committed)


def progress_beyond(count: int) -> Callable[[], bool]:
    return lambda: ProcessedMessage.objects.count() >= count


@pytest.mark.deep
@pytest.mark.timeout(2_000)
@pytest.mark.parametrize("transport", ["celery", "outbox_consume"])
def test_every_event_takes_effect_once_though_somebody_is_killed_every_second(
    database: Database, plant: Plant, workers: Workers, transport: str
) -> None:
    Balance.objects.create(account="sales")
    processes = start(workers, plant, transport)
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    with killed_every_second(processes, random.Random(seed)) as victims:
        producing = Worker(produce, MANY)
        committed = producing.result()
        ends = time.monotonic() + 1_800
        while ProcessedMessage.objects.count() < len(committed):
            assert time.monotonic() < ends, "not all of them took effect"
            time.sleep(0.5)
    assert all(victim.kills for victim in victims)
    wait_until(
        lambda: not OutboxMessage.objects.exclude(status=Status.PUBLISHED).exists(),
        "every message is stamped",
    )
    assert_exactly_once(plant, committed)
