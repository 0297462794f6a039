"""Partitioned queues and two consumers: the messages of one aggregate are handled in their order.

On a RabbitMQ node of the session's own, which has the plugin for consistent hashing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from django_outbox.databases import Database
from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from tests.support.messages import received
from tests.support.plants import Plant, reason_of
from tests.support.rabbitmq import Node
from tests.support.threads import wait_until
from tests.support.workers import Process, Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["workers"]

PARTITIONS = 3
AGGREGATES = 8


@pytest.fixture(scope="module")
def hashing_node(rabbitmq_node: Node) -> Iterator[Node]:
    with rabbitmq_node.plugin("rabbitmq_consistent_hash_exchange"):
        yield rabbitmq_node


@pytest.fixture
def partitioned(hashing_node: Node) -> Iterator[Plant]:
    made = Plant(hashing_node.broker, PARTITIONS=PARTITIONS)
    assert not [finding for finding in made.findings if finding.is_bad]
    yield made
    made.remove()


def order(aggregate: int, number: int, **payload: Any) -> Message:
    body = json.dumps({"amount": number, **payload})
    return received(
        body=body, aggregate_type="shop.invoice", aggregate_id=str(aggregate), sequence=number
    )


def start(workers: Workers, plant: Plant) -> Process:
    Balance.objects.get_or_create(account="sales")
    consumer = workers.outbox_consume(plant.outbox, "--queue", plant.queue)
    consumer.wait_for_line("Connected to RabbitMQ")
    return consumer


def applied(messages: list[Message]) -> dict[str, list[int]]:
    """Aggregate -> the sequence numbers of its messages as their effects were written."""
    known = {str(message.id): message for message in messages}
    found: defaultdict[str, list[int]] = defaultdict(list)
    for reference in LedgerEntry.objects.order_by("pk").values_list("reference", flat=True):
        message = known[reference]
        found[message.aggregate_id].append(message.sequence or 0)
    return found


def test_order_is_kept_within_an_aggregate_through_failures_and_the_death_of_a_consumer(
    database: Database, partitioned: Plant, workers: Workers
) -> None:
    messages = [
        # One of each aggregate fails at first: what is behind it has to wait.
        order(aggregate, number, **({"do": "raise", "until": 3} if number == 4 else {}))
        for number in range(1, 11)
        for aggregate in range(AGGREGATES)
    ]
    consumers = [start(workers, partitioned) for _ in range(2)]
    for message in messages[: len(messages) // 2]:
        partitioned.publish(message)
    workers.diary.wait_for("handled", times=10)
    at_work = {entry["pid"] for entry in workers.diary.entries()}
    next(each for each in consumers if each.pid in at_work).kill()
    for message in messages[len(messages) // 2 :]:
        partitioned.publish(message)
    wait_until(
        lambda: ProcessedMessage.objects.count() == len(messages), "all are processed", every=0.05
    )
    expected = {str(aggregate): list(range(1, 11)) for aggregate in range(AGGREGATES)}
    assert applied(messages) == expected


def test_the_partitions_are_shared_out_and_a_message_without_an_aggregate_has_one_too(
    database: Database, partitioned: Plant, workers: Workers
) -> None:
    for aggregate in range(30):
        partitioned.publish(order(aggregate, 1))
    partitioned.publish(received())
    counts: list[int] = []

    def all_there() -> bool:
        work = partitioned.topology.queues[0]
        counts[:] = [partitioned.broker.count(name) for name in work.names]
        return sum(counts) == 31

    wait_until(all_there, "every message has its partition")
    assert all(counts)


def test_what_is_given_up_lets_those_behind_it_pass(
    database: Database, partitioned: Plant, workers: Workers
) -> None:
    bad, good = order(1, 1, do="raise"), order(1, 2)
    partitioned.publish(bad)
    partitioned.publish(good)
    start(workers, partitioned)
    workers.diary.wait_for("handled", good.id)
    [(properties, _)] = partitioned.dead_letters(at_least=1)
    assert properties.message_id == str(bad.id)
    assert reason_of(properties) == "ValueError, attempt 3 of 3"
    handled = [(entry["what"], entry["id"]) for entry in workers.diary.entries()]
    assert handled == [
        *[("handling", str(bad.id))] * 3,
        ("handling", str(good.id)),
        ("handled", str(good.id)),
    ]
