"""Events received inside a Celery worker: a real worker, its receiver, broker and database."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from typing import Any

import pytest

from django_outbox.databases import Database
from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from tests.support.messages import received
from tests.support.plants import Plant, plant
from tests.support.threads import wait_until
from tests.support.workers import Process, Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["plant", "workers"]

APP = "tests.transports.receivingapp"


def order(**payload: Any) -> Message:
    return received(body=json.dumps(payload))


def start(workers: Workers, plant: Plant, *arguments: str, **more: Any) -> Process:
    Balance.objects.get_or_create(account="sales")
    return workers.celery(plant.outbox, plant.broker.url, plant.queue, *arguments, app=APP, **more)


def booked(message: Message) -> int:
    return LedgerEntry.objects.filter(reference=str(message.id)).count()


def receivers(worker: Process) -> list[int]:
    """The process ids of the receivers that the worker has started, in turn."""
    started = re.findall(r"INFO/MainProcess\] The receiver (\d+) is started", worker.text)
    return [int(pid) for pid in started]


def lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_handles_events_beside_its_tasks_and_stops_in_good_order(
    database: Database, plant: Plant, workers: Workers, pool: str
) -> None:
    events, calls = [order() for _ in range(10)], [order() for _ in range(10)]
    worker = start(workers, plant, "--pool", pool)
    for event, call in zip(events, calls, strict=True):
        plant.publish(event)
        plant.call(call, "ledger.book", queue=f"tasks.{plant.queue}")
    for message in (*events, *calls):
        workers.diary.wait_for("handled", message.id)
    [receiver] = receivers(worker)
    by_receiver = {
        entry["id"] for entry in workers.diary.entries("handled") if entry["pid"] == receiver
    }
    assert by_receiver == {str(event.id) for event in events}
    wait_until(lambda: ProcessedMessage.objects.count() == 20, "all is committed")
    assert worker.stop() == 0
    assert not lives(receiver)
    assert plant.is_empty()
    assert LedgerEntry.objects.count() == 20


def test_a_stop_waits_for_the_event_at_work(
    database: Database, plant: Plant, workers: Workers, tmp_path: Any
) -> None:
    gate = tmp_path / "gate"
    at_work, waiting = order(do="wait", file=str(gate)), order()
    worker = start(workers, plant)
    plant.publish(at_work)
    plant.publish(waiting)
    workers.diary.wait_for("handling", at_work.id)
    # As a process manager that ends a whole group, and the worker does so once more.
    os.killpg(worker.pid, signal.SIGTERM)
    worker.wait_for_line("Warm shutdown")
    gate.touch()
    assert worker.wait() == 0
    assert booked(at_work) == 1
    assert [entry["id"] for entry in workers.diary.entries("handled")] == [str(at_work.id)]
    assert plant.broker.count(plant.queue) == 1


def test_a_killed_receiver_is_started_again_and_nothing_is_lost(
    database: Database, plant: Plant, workers: Workers
) -> None:
    fatal, good = order(do="die", until=2), order()
    worker = start(workers, plant)
    plant.publish(fatal)
    plant.publish(good)
    workers.diary.wait_for("handled", good.id)
    workers.diary.wait_for("handled", fatal.id)
    wait_until(lambda: booked(fatal) == booked(good) == 1, "both are committed")
    worker.wait_for_line("has ended with -9; it is started again in")
    assert len(receivers(worker)) > 1
    assert worker.is_alive


def test_a_receiver_does_not_outlive_its_worker(
    database: Database, plant: Plant, workers: Workers
) -> None:
    message = order()
    worker = start(workers, plant)
    plant.publish(message)
    workers.diary.wait_for("handled", message.id)
    [receiver] = receivers(worker)
    worker.kill()
    wait_until(lambda: not lives(receiver), "the receiver has ended too")


def test_a_worker_does_not_start_on_a_receiver_that_cannot_work(
    database: Database, plant: Plant, workers: Workers
) -> None:
    worker = workers.celery(
        plant.outbox,
        plant.broker.url,
        plant.queue,
        app=APP,
        ready="Unrecoverable error",
        CHILD_CONSUMER="nobody",
    )
    assert worker.wait() != 0
    assert "UnknownConsumer" in worker.text
    assert receivers(worker) == []
