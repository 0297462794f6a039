"""Published messages sent to one consumer alone, over a real RabbitMQ."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_outbox.brokers.rabbitmq.declare import declare
from django_outbox.brokers.rabbitmq.subscription import Subscription
from django_outbox.brokers.rabbitmq.topology_options import read_topology
from django_outbox.consumers.registry import consumer, isolated_registry
from django_outbox.exceptions import NoQueueOfConsumer, ReplayStopped
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.replay_to_consumer import replay_to_consumer
from django_outbox.operations.selection import every_message
from django_outbox.wire.amqp import from_amqp
from tests.conftest import EVERY_DATABASE
from tests.support.plants import Plant, plant
from tests.support.stored import in_flight, stored
from tests.support.threads import wait_until

__all__ = ["plant"]

A, B = ("invoice", "a"), ("invoice", "b")


@pytest.fixture(autouse=True)
def registry():
    with isolated_registry():
        yield


def declare_consumer(name="ledger", *patterns):
    consumer(*(patterns or ("invoice.*",)), name=name)(lambda message: None)


def received(plant: Plant, count: int, queue: str = ""):
    """The messages in the queue, once as many are there."""
    name = queue or plant.queue
    wait_until(lambda: plant.broker.count(name) >= count, f"{count} messages are in {name}")
    subscription = Subscription(plant.connection, [name], prefetch=1000)
    taken = []
    while len(taken) < count:
        for delivery in subscription.take(count, timeout=60):
            taken.append(delivery)
            delivery.ack_for_sure()
    subscription.close()
    return taken


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_the_consumers_queue_gets_what_it_takes_as_it_was_sent_before(
    database, plant, outbox_settings
):
    outbox_settings(**plant.outbox)
    declare_consumer()
    payload = {"total": "12.50", "lines": [1, 2.5, None], "name": "Ünal"}
    row = stored(
        Status.PUBLISHED,
        payload=payload,
        headers={"x": "y"},
        aggregate=A,
        sequence=7,
        correlation_id="c-1",
    )
    stored(Status.PUBLISHED, topic="audit.seen")
    stored(Status.DEAD)
    in_flight()
    before = list(OutboxMessage.objects.order_by("id").values())
    sent = replay_to_consumer(every_message(), "ledger")
    assert (sent.sent, sent.not_taken, sent.not_published) == (1, 1, 2)
    assert list(OutboxMessage.objects.order_by("id").values()) == before
    [delivery] = received(plant, 1)
    message = from_amqp(delivery.properties, delivery.body)
    assert (message.id, message.topic, message.sequence) == (row.message_id, row.topic, 7)
    assert (message.aggregate_id, message.correlation_id) == ("a", "c-1")
    assert json.loads(message.body) == payload
    assert message.created_at == row.created_at


def test_no_other_queue_of_the_exchange_gets_any(database, plant, outbox_settings, rabbitmq):
    other = "other." + plant.queue
    settings = plant.settings["QUEUES"]
    settings[other] = {**settings[plant.queue]}
    topology, _ = read_topology(plant.settings)
    list(declare(topology, plant.connection))
    try:
        outbox_settings(**plant.outbox)
        declare_consumer()
        stored(Status.PUBLISHED)
        assert replay_to_consumer(every_message(), "ledger", queue=plant.queue).sent == 1
        received(plant, 1)
        assert rabbitmq.count(other) == 0
    finally:
        plant.topology = topology


def test_messages_of_an_aggregate_come_in_their_order(database, plant, outbox_settings):
    outbox_settings(**plant.outbox)
    declare_consumer()
    for number in range(30):
        stored(Status.PUBLISHED, payload={"n": number}, aggregate=(A, B)[number % 2])
    assert replay_to_consumer(every_message(), "ledger", chunk=7).sent == 30
    numbers = [json.loads(delivery.body)["n"] for delivery in received(plant, 30)]
    assert [n for n in numbers if n % 2] == list(range(1, 30, 2))
    assert [n for n in numbers if not n % 2] == list(range(0, 30, 2))


def test_no_more_bytes_are_in_memory_at_a_time_than_a_claim_takes(database, plant, outbox_settings):
    outbox_settings(**plant.outbox, BATCH_BYTES=100)
    declare_consumer()
    for number, size in enumerate((60, 60, 10, 30, 500, 10)):
        stored(Status.PUBLISHED, payload={"n": number}, size=size)
    with CaptureQueriesContext(connection) as queries:
        assert replay_to_consumer(every_message(), "ledger").sent == 6
    reads = [query["sql"] for query in queries if '"payload")::text' in query["sql"]]
    assert len(reads) == 4, "60; 60, 10, 30; 500; 10"
    numbers = [json.loads(delivery.body)["n"] for delivery in received(plant, 6)]
    assert sorted(numbers) == list(range(6))


@pytest.mark.deep
def test_a_partitioned_queue_is_reached_through_what_shares_it_out(
    database, rabbitmq_node, outbox_settings
):
    with rabbitmq_node.plugin("rabbitmq_consistent_hash_exchange"):
        made = Plant(rabbitmq_node.broker, PARTITIONS=2)
        outbox_settings(**made.outbox)
        declare_consumer()
        for number in range(20):
            stored(Status.PUBLISHED, aggregate=("t", str(number)))
        assert replay_to_consumer(every_message(), "ledger").sent == 20
        partitions = [made.broker.count(name) for name in made.topology.queues[0].names]
        assert sum(partitions) == 20
        assert all(partitions)
        made.remove()


def test_the_first_that_is_not_confirmed_stops_it_and_says_how_to_go_on(
    database, plant, outbox_settings
):
    limit = {"x-max-length": 2, "x-overflow": "reject-publish"}
    narrow = Plant(plant.broker, TYPE="classic", ARGUMENTS=limit)
    try:
        outbox_settings(**narrow.outbox)
        declare_consumer()
        rows = [stored(Status.PUBLISHED, aggregate=A) for _ in range(5)]
        with pytest.raises(ReplayStopped) as stopped:
            replay_to_consumer(every_message(), "ledger")
        said = str(stopped.value)
        assert said.startswith("Stopped after 2 messages")
        assert str(rows[2].message_id) in said
        received(narrow, 2)
        since = said.partition("--since ")[2].partition(";")[0]
        call_command(
            "outbox_replay",
            "--new-consumer=ledger",
            "--since",
            since,
            "--id",
            *(str(row.message_id) for row in rows[2:4]),
            stdout=StringIO(),
        )
        assert narrow.broker.count(narrow.queue) == 2
    finally:
        narrow.remove()


def test_a_queue_that_does_not_exist_takes_nothing_and_that_is_an_error(
    database, rabbitmq, outbox_settings
):
    missing = Plant(rabbitmq)
    missing.remove()
    outbox_settings(**missing.outbox)
    declare_consumer()
    stored(Status.PUBLISHED)
    with pytest.raises(ReplayStopped, match="Stopped after 0 messages"):
        replay_to_consumer(every_message(), "ledger")


def test_a_task_of_celery_is_called_by_the_publisher_that_knows_it(
    database, plant, outbox_settings
):
    tasks = {"invoice.issued": "ledger.book", "#": "audit.note"}
    celery = {
        "BACKEND": "django_outbox.publishers.celery.CeleryPublisher",
        "URL": plant.broker.url,
        "QUEUE": plant.queue,
        "TASKS": tasks,
    }
    outbox_settings(PUBLISHERS={"default": celery})
    row = stored(Status.PUBLISHED)
    stored(Status.PUBLISHED, topic="invoice.paid")
    sent = replay_to_consumer(every_message(), "ledger.book")
    assert (sent.sent, sent.not_taken) == (1, 1)
    [delivery] = received(plant, 1)
    assert delivery.properties.headers["task"] == "ledger.book"
    assert delivery.properties.headers["id"] == str(row.message_id)


@pytest.mark.parametrize(
    ("queues", "hint"),
    [
        ({}, "No queue of OUTBOX['TOPOLOGY'] is bound for all topics of 'ledger'"),
        ({"a": {"BINDINGS": ["#"]}, "b": {"BINDINGS": ["invoice.*"]}}, "several queues: a, b"),
        ({"a": {"BINDINGS": ["invoice.issued"]}}, "No queue of OUTBOX['TOPOLOGY'] is bound"),
    ],
)
def test_where_it_is_not_clear_which_queue_nothing_is_sent(database, outbox_settings, queues, hint):
    outbox_settings(TOPOLOGY={"QUEUES": queues})
    declare_consumer()
    with pytest.raises(NoQueueOfConsumer, match="Name") as refused:
        replay_to_consumer(every_message(), "ledger")
    assert hint in str(refused.value)


def test_a_consumer_that_nobody_knows_is_refused_with_the_queues_that_are_known(
    database, outbox_settings
):
    outbox_settings(TOPOLOGY={"QUEUES": {"ledger": {"BINDINGS": ["#"]}}})
    with pytest.raises(CommandError, match=r"by --queue\. Known queues: ledger"):
        call_command("outbox_replay", "--all", "--new-consumer", "leger", stdout=StringIO())
    with pytest.raises(CommandError, match="--queue goes with --new-consumer"):
        call_command("outbox_replay", "--all", "--queue", "ledger", stdout=StringIO())
