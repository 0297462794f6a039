"""outbox_consume on bad days: real processes, a real broker, a real database."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from django_outbox.models import OutboxMessage, ProcessedMessage
from tests.support.messages import received
from tests.support.plants import Plant, plant, reason_of
from tests.support.proxy import TcpProxy
from tests.support.threads import wait_until
from tests.support.workers import Process, Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["plant", "workers"]

ON_SERVERS = pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)


def order(**payload: Any) -> Any:
    return received(body=json.dumps(payload))


def start(workers: Workers, plant: Plant, *arguments: str, **more: Any) -> Process:
    Balance.objects.get_or_create(account="sales")
    process = workers.outbox_consume(plant.outbox, "--queue", plant.queue, *arguments, **more)
    process.wait_for_line("Connected to RabbitMQ")
    return process


def booked(message: Any) -> int:
    return LedgerEntry.objects.filter(reference=str(message.id)).count()


@ON_SERVERS
def test_an_event_takes_effect_once_and_is_acknowledged(database, plant, workers):
    messages = [order(amount=n) for n in range(20)]
    last = order(amount=0)
    consumer = start(workers, plant)
    for message in [*messages, *messages, last]:
        plant.publish(message)
    workers.diary.wait_for("handled", last.id)
    assert consumer.stop() == 0
    assert plant.is_empty()
    assert LedgerEntry.objects.count() == ProcessedMessage.objects.count() == 21
    assert Balance.objects.get().amount == sum(range(20))


@ON_SERVERS
def test_two_workers_get_the_same_message_and_it_is_handled_once(database, plant, workers):
    message = order(do="sleep", seconds=0.2)
    consumers = [start(workers, plant, "--prefetch", "1") for _ in range(2)]
    plant.publish(message)
    plant.publish(message)
    workers.diary.wait_for("handled", message.id)
    for consumer in consumers:
        assert consumer.stop() == 0
    assert len(workers.diary.entries("handling", message.id)) == 1
    assert booked(message) == 1
    assert plant.is_empty()


def test_of_two_workers_the_second_handles_it_when_the_first_fails(database, plant, workers):
    message = order(do="raise", until=2)
    consumers = [start(workers, plant, "--prefetch", "1") for _ in range(2)]
    plant.publish(message)
    plant.publish(message)
    workers.diary.wait_for("handled", message.id)
    wait_until(plant.is_empty, "everything is acknowledged")
    for consumer in consumers:
        consumer.stop()
    assert booked(message) == 1
    assert plant.broker.count(plant.dead_letter_queue) == 0


def test_a_message_that_fails_comes_again_and_holds_nobody_back(database, plant, workers):
    failing, good = order(do="raise", until=3), order()
    start(workers, plant)
    plant.publish(failing)
    plant.publish(good)
    workers.diary.wait_for("handled", failing.id)
    attempts = [entry["attempt"] for entry in workers.diary.entries("handling", failing.id)]
    assert attempts == [1, 2, 3]
    order_of_events = [entry["id"] for entry in workers.diary.entries("handled")]
    assert order_of_events == [str(good.id), str(failing.id)]
    assert booked(failing) == 1


def test_what_is_given_up_is_dead_lettered_with_its_reason_and_nothing_of_the_error(
    database, plant, workers
):
    failing, rejected = order(do="raise", name="Ada"), order(do="reject")
    consumer = start(workers, plant)
    plant.publish(failing, correlation_id="chain-1", user_id="guest")
    plant.publish(rejected)
    dead = plant.dead_letters(at_least=2)
    by_id = {properties.message_id: (properties, body) for properties, body in dead}
    properties, body = by_id[str(failing.id)]
    assert reason_of(properties) == "ValueError, attempt 3 of 3"
    assert body == failing.body.encode()
    assert properties.type == "invoice.issued"
    assert properties.correlation_id == "chain-1"
    assert properties.headers["x-outbox-queue"] == plant.queue
    assert properties.headers["x-outbox-routing-key"] == "invoice.issued"
    assert properties.headers["x-outbox-exchange"] == plant.exchange
    assert "x-death" not in properties.headers
    assert reason_of(by_id[str(rejected.id)][0]) == "its account is closed"
    assert "Ada" not in consumer.text
    assert not LedgerEntry.objects.exists()
    assert not ProcessedMessage.objects.exists()


def test_a_postponed_message_charges_no_attempt(database, plant, workers):
    message = order(do="postpone")
    start(workers, plant)
    plant.publish(message)
    workers.diary.wait_for("handling", message.id, times=6)
    attempts = {entry["attempt"] for entry in workers.diary.entries("handling", message.id)}
    assert attempts == {1}
    assert plant.broker.count(plant.dead_letter_queue) == 0


def test_what_a_handler_enqueues_carries_the_chain_on_and_names_its_cause(database, plant, workers):
    chained = replace(order(do="enqueue"), correlation_id="chain-1", causation_id="cause-1")
    first = order(do="enqueue")
    start(workers, plant)
    plant.publish(chained)
    plant.publish(first)
    wait_until(lambda: OutboxMessage.objects.count() == 2, "both handlers have committed")
    by_cause = dict(OutboxMessage.objects.values_list("causation_id", "correlation_id"))
    assert by_cause == {str(chained.id): "chain-1", str(first.id): str(first.id)}


@ON_SERVERS
def test_killed_between_handling_and_commit_it_runs_again(database, plant, workers):
    message = order(do="die", until=2)
    good = order()
    consumer = start(workers, plant)
    plant.publish(message)
    plant.publish(good)
    while not workers.diary.entries("handled", message.id):
        wait_until(
            lambda: not consumer.is_alive or workers.diary.entries("handled", message.id),
            "the consumer is killed or has done it",
        )
        if not consumer.is_alive:
            consumer.restart()
    workers.diary.wait_for("handled", good.id)
    assert consumer.stop() == 0
    assert booked(message) == booked(good) == 1


@ON_SERVERS
def test_killed_after_the_commit_and_before_the_ack_it_is_not_handled_again(
    database, plant, workers
):
    message = order(do="die after commit")
    consumer = start(workers, plant)
    plant.publish(message)
    workers.diary.wait_for("committed", message.id)
    wait_until(lambda: not consumer.is_alive, "the consumer is killed")
    assert plant.broker.count(plant.queue) == 1, "it was acknowledged before it was done"
    consumer.restart()
    wait_until(plant.is_empty, "the duplicate is acknowledged")
    assert consumer.stop() == 0
    assert len(workers.diary.entries("handling", message.id)) == 1
    assert booked(message) == 1


def test_what_kills_its_consumer_is_set_aside_and_its_neighbours_are_not(database, plant, workers):
    poison = order(do="die")
    neighbours = [order(amount=n) for n in range(30)]
    for message in [*neighbours[:3], poison, *neighbours[3:]]:
        plant.publish(message)
    Balance.objects.create(account="sales")
    consumer = workers.outbox_consume(plant.outbox, "--queue", plant.queue)

    def is_settled() -> bool:
        if not consumer.is_alive:
            consumer.restart()
        return plant.broker.count(plant.dead_letter_queue) == 1 and plant.is_empty()

    wait_until(is_settled, "the poison is set aside", every=0.05)
    for neighbour in neighbours:
        workers.diary.wait_for("handled", neighbour.id)
    if not consumer.is_alive:
        consumer.restart()
    consumer.stop()
    [(properties, _)] = plant.dead_letters()
    assert properties.message_id == str(poison.id)
    assert reason_of(properties) == "its consumer ended again and again, attempt 3"
    assert LedgerEntry.objects.count() == len(neighbours)
    wait_until(plant.is_empty, "the copies of suspects are done with")


def test_a_graceful_stop_finishes_the_message_at_work(database, plant, workers, tmp_path):
    gate = tmp_path / "gate"
    at_work, waiting = order(do="wait", file=str(gate)), order()
    consumer = start(workers, plant)
    plant.publish(at_work)
    plant.publish(waiting)
    workers.diary.wait_for("handling", at_work.id)
    consumer._process.terminate()
    gate.touch()
    assert consumer._process.wait(60) == 0
    assert [entry["id"] for entry in workers.diary.entries("handled")] == [str(at_work.id)]
    assert plant.broker.count(plant.queue) == 1


def test_heartbeats_are_served_while_a_handler_works(database, plant, workers, tmp_path):
    gate = tmp_path / "gate"
    message = order(do="wait", file=str(gate))
    plant.settings["HEARTBEAT"] = 1
    consumer = start(workers, plant)
    plant.publish(message)
    workers.diary.wait_for("handling", message.id)
    time.sleep(6)  # the promise is about time: the broker closes what is silent for two beats
    gate.touch()
    workers.diary.wait_for("handled", message.id)
    assert consumer.stop() == 0
    assert consumer.text.count("Connected to RabbitMQ") == 1
    assert plant.is_empty()


def test_the_connection_is_made_again_after_it_was_cut(database, plant, workers):
    with plant.broker.proxy() as proxy:
        plant.settings["URL"] = plant.broker.through(proxy)
        consumer = start(workers, plant)
        first, second, third = order(), order(), order()
        plant.publish(first)
        workers.diary.wait_for("handled", first.id)
        proxy.cut()
        plant.publish(second)
        workers.diary.wait_for("handled", second.id)
        proxy.refuse()
        plant.publish(third)
        consumer.wait_for_line("connection refused")
        proxy.accept()
        workers.diary.wait_for("handled", third.id)
        assert consumer.stop() == 0
    assert LedgerEntry.objects.count() == 3


def test_while_the_database_is_away_nothing_is_acknowledged_and_then_all_is_handled(
    database, plant, workers
):
    host, port = (
        database.connection.settings_dict["HOST"],
        database.connection.settings_dict["PORT"],
    )
    messages = [order(amount=1) for _ in range(30)]
    Balance.objects.create(account="sales")
    with TcpProxy(host or "127.0.0.1", int(port or 5432)) as proxy:
        through = {"HOST": "127.0.0.1", "PORT": str(proxy.port)}
        consumer = start(workers, plant, database=through)
        plant.publish(messages[0])
        workers.diary.wait_for("handled", messages[0].id)
        proxy.refuse()
        for message in messages[1:]:
            plant.publish(message)
        consumer.wait_for_line("does not answer; asking again")
        assert plant.broker.count(plant.dead_letter_queue) == 0
        proxy.accept()
        for message in messages:
            workers.diary.wait_for("handled", message.id)
        assert consumer.stop() == 0
    assert LedgerEntry.objects.count() == Balance.objects.get().amount == 30
    assert plant.is_empty()
    assert plant.broker.count(plant.dead_letter_queue) == 0
    attempts = {entry["attempt"] for entry in workers.diary.entries("handling")}
    assert attempts == {1}


def test_it_says_what_it_does_where_the_project_configures_no_logging(database, plant, workers):
    consumer = start(workers, plant, CHILD_LOG="")
    plant.publish(order(do="reject"))
    consumer.wait_for_line("is set aside: its account is closed")
    assert consumer.stop() == 0


def test_a_missing_topology_is_said_at_once(database, rabbitmq, workers):
    outbox = {"TOPOLOGY": {"URL": rabbitmq.url, "EXCHANGE": "nobody.made.it"}}
    consumer = workers.outbox_consume(outbox, "--queue", "nobody.made.it")
    wait_until(lambda: not consumer.is_alive, "the consumer has ended")
    assert "manage.py outbox_topology" in consumer.text
    assert "NOT_FOUND" in consumer.text
