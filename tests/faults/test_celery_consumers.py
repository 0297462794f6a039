"""Celery tasks as consumers on bad days: a real worker with two processes, broker and database."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pika
import pytest

from django_outbox.databases import Database
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage, ProcessedMessage
from django_outbox.wire.celery import ARGS_REPR
from tests.support.messages import received
from tests.support.plants import Plant, plant, reason_of
from tests.support.proxy import TcpProxy
from tests.support.rabbitmq import Broker
from tests.support.threads import wait_until
from tests.support.workers import Process, Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["plant", "workers"]

ON_SERVERS = pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
BOOK = "ledger.book"


def order(**payload: Any) -> Message:
    return received(body=json.dumps(payload))


def start(workers: Workers, plant: Plant, *arguments: str, **more: Any) -> Process:
    Balance.objects.get_or_create(account="sales")
    return workers.celery(plant.outbox, plant.broker.url, plant.queue, *arguments, **more)


def booked(message: Message) -> int:
    return LedgerEntry.objects.filter(reference=str(message.id)).count()


def attempts(workers: Workers, message: Message) -> list[int]:
    return [entry["attempt"] for entry in workers.diary.entries("handling", message.id)]


def wait_for_ends(worker: Process, count: int) -> None:
    """Until that many deliveries came to an end: a stopped worker gives back what it has not begun."""
    wait_until(
        lambda: worker.text.count(" succeeded in ") >= count,
        f"{count} deliveries are done",
        every=0.05,
    )


@ON_SERVERS
def test_an_event_takes_effect_once_and_a_stopped_worker_leaves_nothing_behind(
    database: Database, plant: Plant, workers: Workers
) -> None:
    messages = [order(amount=n) for n in range(20)]
    worker = start(workers, plant)
    for message in [*messages, *messages]:
        plant.call(message, BOOK)
    wait_for_ends(worker, 40)
    assert worker.stop() == 0
    assert plant.is_empty()
    assert LedgerEntry.objects.count() == ProcessedMessage.objects.count() == 20
    assert Balance.objects.get().amount == sum(range(20))
    assert set(ProcessedMessage.objects.values_list("consumer", flat=True)) == {BOOK}


def test_a_task_that_raises_is_tried_again_and_in_the_end_dead_lettered(
    database: Database, plant: Plant, workers: Workers
) -> None:
    passing, failing = order(do="raise", until=3, name="Ada"), order(do="raise", name="Ada")
    good = order()
    worker = start(workers, plant)
    for message in (failing, passing, good):
        plant.call(message, BOOK)
    plant.wait_for_dead(1)
    workers.diary.wait_for("handled", passing.id)
    workers.diary.wait_for("handled", good.id)
    assert attempts(workers, passing) == attempts(workers, failing) == [1, 2, 3]
    [(dead, body)] = plant.dead_letters()
    assert dead.headers["id"] == str(failing.id)
    assert json.loads(body)[0][0]["data"]["name"] == "Ada"
    assert reason_of(dead) == "ValueError, attempt 3 of 3"
    assert dead.headers["argsrepr"] == ARGS_REPR
    assert dead.headers["x-outbox-queue"] == plant.queue
    worker.wait_for_line(f"{failing.id} is given up: ValueError, attempt 3 of 3")
    assert "Ada" not in worker.text
    assert booked(passing) == booked(good) == 1
    assert booked(failing) == 0
    assert ProcessedMessage.objects.count() == 2


def test_retries_do_not_wait_in_the_workers_memory(
    database: Database, plant: Plant, workers: Workers
) -> None:
    """With a quorum queue the prefetch is fixed: as many waiting messages would stop everything."""
    plant.settings["QUEUES"][plant.queue]["RETRY_DELAYS"] = [1]
    failing = [order(do="raise", until=2) for _ in range(20)]
    start(workers, plant, "--concurrency", "1", "--prefetch-multiplier", "1")
    for message in failing:
        plant.call(message, BOOK)
    good = order()
    plant.call(good, BOOK)
    workers.diary.wait_for("handled", good.id)
    for message in failing:
        workers.diary.wait_for("handled", message.id)
    assert plant.broker.count(plant.dead_letter_queue) == 0


def test_a_message_that_waits_shows_nothing_of_its_payload_in_its_headers(
    database: Database, rabbitmq: Broker, workers: Workers
) -> None:
    """Celery would write the arguments into them, for its log and its monitors."""
    plant = Plant(rabbitmq, RETRY_DELAYS=[60])
    try:
        outbox = {**plant.outbox, "CONSUMERS": {"BACKOFF_BASE": 60, "BACKOFF_CAP": 60}}
        workers.celery(outbox, rabbitmq.url, plant.queue)
        for _ in range(5):
            plant.call(order(do="raise", name="Ada"), BOOK)
        waiting = f"{plant.queue}.retry.60s"
        # The wait is random from nothing: one or two of them may be back already.
        wait_until(lambda: rabbitmq.count(waiting) >= 3, "they wait")
        for properties, body in rabbitmq.take(waiting):
            assert b"Ada" in body
            assert "Ada" not in str(properties)
            assert properties.headers["argsrepr"] == ARGS_REPR
    finally:
        plant.remove()


def test_celerys_own_ways_to_retry_end_where_they_say(
    database: Database, plant: Plant, workers: Workers
) -> None:
    by_autoretry, by_retry, passing = (
        order(do="raise", name="Ada"),
        order(name="Ada"),
        order(until=1),
    )
    worker = start(workers, plant)
    plant.call(by_autoretry, "ledger.autoretry")
    plant.call(by_retry, "ledger.own_retry")
    plant.call(passing, "ledger.own_retry")
    dead = plant.dead_letters(at_least=2)
    assert {each.headers["id"] for each, _ in dead} == {str(by_autoretry.id), str(by_retry.id)}
    assert attempts(workers, by_autoretry) == [1, 2]
    assert attempts(workers, by_retry) == [1, 2, 3]
    workers.diary.wait_for("handling", passing.id, times=2)
    wait_until(
        lambda: ProcessedMessage.objects.filter(message_id=passing.id).exists(), "it is processed"
    )
    worker.wait_for_line(f"{by_retry.id} is given up: no retries are left")
    # Celery's own error for the end of retries has the arguments in its text.
    assert "no retries are left" in worker.text
    assert "'name': 'Ada'" not in worker.text


def test_a_task_may_reject_or_postpone_its_message(
    database: Database, plant: Plant, workers: Workers
) -> None:
    rejected, postponed, other = order(do="reject"), order(do="postpone"), order()
    worker = start(workers, plant)
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    plant.call(rejected, BOOK, expires=in_an_hour.isoformat())
    plant.call(postponed, BOOK)
    plant.call(other, "ledger.picky")
    dead = plant.dead_letters(at_least=2)
    assert {each.headers["id"] for each, _ in dead} == {str(rejected.id), str(other.id)}
    assert [each.expiration for each, _ in dead] == [None, None], "it would not stay"
    worker.wait_for_line("is given up: its account is closed")
    worker.wait_for_line("is given up: the task does not take its topic")
    workers.diary.wait_for("handling", postponed.id, times=5)
    assert set(attempts(workers, postponed)) == {1}


def test_what_a_task_enqueues_carries_the_chain_on_and_names_its_cause(
    database: Database, plant: Plant, workers: Workers
) -> None:
    chained = replace(order(do="enqueue"), correlation_id="chain-1", causation_id="cause-1")
    first = order(do="enqueue")
    start(workers, plant)
    for message in (chained, first):
        plant.call(message, BOOK)
    wait_until(lambda: OutboxMessage.objects.count() == 2, "both handlers have committed")
    by_cause = dict(OutboxMessage.objects.values_list("causation_id", "correlation_id"))
    assert by_cause == {str(chained.id): "chain-1", str(first.id): str(first.id)}


def test_a_task_class_has_the_inbox_name_that_it_says(
    database: Database, plant: Plant, workers: Workers
) -> None:
    message = order()
    start(workers, plant)
    plant.call(message, "ledger.class")
    workers.diary.wait_for("handled", message.id)
    wait_until(ProcessedMessage.objects.exists, "it is committed")
    assert ProcessedMessage.objects.get().consumer == "invoices"


@ON_SERVERS
def test_two_processes_get_the_same_message_and_it_is_handled_once(
    database: Database, plant: Plant, workers: Workers
) -> None:
    message, second = order(do="sleep", seconds=0.2), order(do="raise", until=2)
    worker = start(workers, plant)
    for each in (message, message, second, second):
        plant.call(each, BOOK)
    workers.diary.wait_for("handled", message.id)
    workers.diary.wait_for("handled", second.id)
    wait_until(plant.is_empty, "nothing waits")
    assert worker.stop() == 0
    assert booked(message) == booked(second) == 1
    assert len(workers.diary.entries("handled", message.id)) == 1


def test_a_killed_process_costs_its_own_message_alone(
    database: Database, plant: Plant, workers: Workers
) -> None:
    """It comes again, and in the end is rejected; its neighbours are handled at their first attempt."""
    poison, once = order(do="die"), order(do="die", until=2)
    neighbours = [order() for _ in range(10)]
    worker = start(workers, plant)
    for message in [*neighbours[:5], poison, once, *neighbours[5:]]:
        plant.call(message, BOOK)
    [(dead, _)] = plant.dead_letters(at_least=1)
    assert dead.headers["id"] == str(poison.id)
    assert attempts(workers, poison) == [1, 2, 3]
    for message in neighbours:
        workers.diary.wait_for("handled", message.id)
        assert attempts(workers, message) == [1]
    workers.diary.wait_for("handled", once.id)
    worker.wait_for_line(f"message {poison.id} ended its worker process again")
    assert worker.is_alive


def test_killed_after_the_commit_it_is_a_duplicate(
    database: Database, plant: Plant, workers: Workers
) -> None:
    message = order(do="die after commit")
    worker = start(workers, plant)
    plant.call(message, BOOK)
    workers.diary.wait_for("committed", message.id)
    worker.wait_for_line("'duplicate'")
    assert worker.stop() == 0
    assert plant.is_empty()
    assert len(workers.diary.entries("handling", message.id)) == 1
    assert booked(message) == 1


def test_the_whole_worker_is_killed_and_the_next_one_goes_on(
    database: Database, plant: Plant, workers: Workers, tmp_path: Any
) -> None:
    gate = tmp_path / "gate"
    at_work, waiting = order(do="wait", file=str(gate)), [order() for _ in range(5)]
    worker = start(workers, plant)
    plant.call(at_work, BOOK)
    workers.diary.wait_for("handling", at_work.id)
    for message in waiting:
        plant.call(message, BOOK)
    worker.close()
    gate.touch()
    start(workers, plant)
    for message in (at_work, *waiting):
        workers.diary.wait_for("handled", message.id)
        wait_until(lambda message=message: booked(message) == 1, "it is committed")
    assert plant.broker.count(plant.dead_letter_queue) == 0


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_time_limits_are_failed_attempts_and_come_to_an_end(
    database: Database, rabbitmq: Broker, workers: Workers, kind: str
) -> None:
    plant = Plant(rabbitmq, TYPE=kind)
    try:
        soft, hard = order(do="sleep", seconds=30), order(do="hang", seconds=30)
        once = order(do="hang", seconds=30, until=2)
        worker = start(workers, plant)
        for message in (soft, hard):
            plant.call(message, "ledger.book_in_time")
        dead = plant.dead_letters(at_least=2)
        assert {each.headers["id"] for each, _ in dead} == {str(soft.id), str(hard.id)}
        assert len(attempts(workers, soft)) == len(attempts(workers, hard)) == 2
        worker.wait_for_line("given up: billiard.exceptions.SoftTimeLimitExceeded, attempt 2 of 2")
        if kind == "quorum":  # a classic queue does not say which delivery it is
            plant.call(once, "ledger.book_in_time")
            workers.diary.wait_for("handled", once.id)
        assert not LedgerEntry.objects.exclude(reference=str(once.id)).exists()
    finally:
        plant.remove()


def test_what_is_no_event_is_dead_lettered_at_once(
    database: Database, plant: Plant, workers: Workers
) -> None:
    start(workers, plant)
    message = order()
    bad = {
        "nil id": {"ce-id": "00000000-0000-0000-0000-000000000000"},
        "no version": {"id": str(uuid4())},
    }
    plant.call(message, BOOK, **bad["nil id"])
    properties = pika.BasicProperties(
        headers={"task": BOOK, "id": str(uuid4()), "lang": "py"},
        content_type="application/json",
        content_encoding="utf-8",
    )
    event = {
        "specversion": "1.0",
        "type": "t",
        "id": str(uuid4()),
        "schemaversion": "two",
        "data": 1,
    }
    plant.send_to_queue(json.dumps([[event], {}, {}]).encode(), properties)
    plant.send_to_queue(json.dumps([[event, event], {}, {}]).encode(), properties)
    plant.send_to_queue(json.dumps([[], {}, {}]).encode(), properties)
    dead = plant.dead_letters(at_least=4)
    assert len(dead) == 4
    good = order()
    plant.call(good, BOOK)
    workers.diary.wait_for("handled", good.id)
    assert not workers.diary.entries("handling", message.id)


def test_while_the_database_is_away_tasks_wait_and_then_all_are_handled(
    database: Database, plant: Plant, workers: Workers
) -> None:
    address = database.connection.settings_dict
    messages = [order(amount=1) for _ in range(20)]
    with TcpProxy(address["HOST"] or "127.0.0.1", int(address["PORT"] or 5432)) as proxy:
        worker = start(workers, plant, database={"HOST": "127.0.0.1", "PORT": str(proxy.port)})
        plant.call(messages[0], BOOK)
        workers.diary.wait_for("handled", messages[0].id)
        proxy.refuse()
        for message in messages[1:]:
            plant.call(message, BOOK)
        worker.wait_for_line("waiting: the database 'default' does not answer")
        assert plant.broker.count(plant.dead_letter_queue) == 0
        proxy.accept()
        for message in messages:
            workers.diary.wait_for("handled", message.id)
        assert worker.stop() == 0
    assert LedgerEntry.objects.count() == Balance.objects.get().amount == 20
    assert plant.is_empty()
    assert {entry["attempt"] for entry in workers.diary.entries("handling")} == {1}
