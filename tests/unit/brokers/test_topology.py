"""What queues there should be, and what is wrong with the settings that ask for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_outbox.brokers.rabbitmq.topology import Binding, Exchange, Queue, Topology, WorkQueue
from django_outbox.brokers.rabbitmq.topology_options import read_topology
from django_outbox.brokers.rabbitmq.topology_options import topology as configured_topology

LEDGER = WorkQueue("ledger", ("invoice.*", "receipt.#"), retry_delays=(1, 10))


def items(*queues: WorkQueue) -> list[Any]:
    return list(Topology("events", "events.dead", queues).items())


def test_a_work_queue_has_wait_queues_and_a_dead_letter_queue_around_it() -> None:
    found = items(LEDGER)
    assert [item.name for item in found if isinstance(item, Queue)] == [
        "ledger.dead",
        "ledger",
        "ledger.retry.1s",
        "ledger.retry.10s",
    ]
    assert Binding("events", "ledger", "invoice.*") in found
    assert Binding("events", "ledger", "receipt.#") in found
    assert Binding("events.dead", "ledger.dead", "ledger") in found
    work = next(item for item in found if item == Queue("ledger", item_arguments(found, "ledger")))
    assert work.arguments == {
        "x-queue-type": "quorum",
        "x-delivery-limit": 20,
        "x-dead-letter-exchange": "events.dead",
        "x-dead-letter-routing-key": "ledger",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def item_arguments(found: list[Any], name: str) -> Any:
    return next(i.arguments for i in found if isinstance(i, Queue) and i.name == name)


def test_a_message_goes_back_from_its_wait_queue_by_the_default_exchange() -> None:
    arguments = item_arguments(items(LEDGER), "ledger.retry.10s")
    assert arguments["x-message-ttl"] == 10_000
    assert arguments["x-dead-letter-exchange"] == ""
    assert arguments["x-dead-letter-routing-key"] == "ledger"
    assert arguments["x-dead-letter-strategy"] == "at-least-once"


def test_a_classic_queue_has_no_arguments_that_only_quorum_queues_know() -> None:
    found = items(WorkQueue("ledger", kind="classic", retry_delays=(1,)))
    for name in ("ledger", "ledger.dead", "ledger.retry.1s"):
        arguments = item_arguments(found, name)
        assert arguments["x-queue-type"] == "classic"
        assert not {"x-delivery-limit", "x-dead-letter-strategy"} & set(arguments)


def test_partitions_hang_on_a_consistent_hash_of_the_aggregate_and_have_one_active_consumer() -> (
    None
):
    found = items(WorkQueue("ledger", ("invoice.*",), partitions=2))
    hashing = Exchange("ledger.partitions", "x-consistent-hash", {"hash-header": "ce-partitionkey"})
    assert hashing in found
    assert Binding("events", "ledger.partitions", "invoice.*", to_exchange=True) in found
    for name in ("ledger.0", "ledger.1"):
        assert Binding("ledger.partitions", name, "1") in found
        assert item_arguments(found, name)["x-single-active-consumer"] is True
    assert not [i for i in found if isinstance(i, Queue) and ".retry." in i.name]


def test_a_queues_entrance_leads_nowhere_else() -> None:
    assert WorkQueue("ledger").entrance == ("", "ledger")
    exchange, _ = WorkQueue("ledger", partitions=2).entrance
    assert Exchange(exchange, "x-consistent-hash", {"hash-header": "ce-partitionkey"}) in items(
        WorkQueue("ledger", partitions=2)
    )


def test_everything_needs_only_what_came_before_it() -> None:
    there: set[str] = {""}
    for item in items(LEDGER, WorkQueue("parted", ("#",), partitions=3)):
        if isinstance(item, Binding):
            assert {item.source, item.destination} <= there
        else:
            there.add(item.name)


@pytest.mark.parametrize(
    ("seconds", "queue", "milliseconds"),
    [
        (0, "ledger.retry.1s", 1),
        (0.25, "ledger.retry.1s", 250),
        (1, "ledger.retry.1s", 1_000),
        (1.001, "ledger.retry.10s", 1_001),
        (10, "ledger.retry.10s", 10_000),
        (3_600, "ledger.retry.10s", 10_000),
    ],
)
def test_the_shortest_wait_queue_that_lasts_long_enough_is_taken(
    seconds: float, queue: str, milliseconds: int
) -> None:
    assert LEDGER.wait_queue(timedelta(seconds=seconds)) == (queue, milliseconds)


def test_a_queue_is_found_by_its_name_and_by_its_partitions() -> None:
    parted = WorkQueue("parted", partitions=2)
    topology = Topology(queues=(LEDGER, parted))
    assert topology.queue_of("ledger") is LEDGER
    assert topology.queue_of("parted") is topology.queue_of("parted.1") is parted
    assert topology.queue_of("parted.2") is None


def test_the_settings_are_read() -> None:
    topology, problems = read_topology(
        {
            "URL": "amqp://broker",
            "EXCHANGE": "events",
            "QUEUES": {"ledger": {"BINDINGS": ["invoice.*", "receipt.#"], "RETRY_DELAYS": [1, 10]}},
        }
    )
    assert problems == []
    assert topology == Topology("events", "events.dead", (LEDGER,))


@pytest.mark.parametrize(
    ("publisher", "exchange"),
    [
        ({"EXCHANGE": "billing.events"}, "billing.events"),
        ({"EXCHANGE": "amq.topic"}, "domain.events"),
        ({}, "domain.events"),
    ],
)
def test_the_exchange_is_the_one_that_the_relay_publishes_to(
    publisher: dict[str, str], exchange: str, settings: Any
) -> None:
    settings.OUTBOX = {
        "PUBLISHERS": {"default": {"BACKEND": "any.Publisher", **publisher}},
        "TOPOLOGY": {"QUEUES": {"ledger": {}}},
    }
    declared = configured_topology()
    assert (declared.exchange, declared.dead_letter_exchange) == (exchange, f"{exchange}.dead")
    settings.OUTBOX = {**settings.OUTBOX, "TOPOLOGY": {"EXCHANGE": "elsewhere"}}
    assert configured_topology().exchange == "elsewhere"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([], "OUTBOX['TOPOLOGY'] must be a dict."),
        ({"EXCHNGE": "x"}, "['EXCHNGE'] is not a setting. Did you mean 'EXCHANGE'?"),
        ({"EXCHANGE": ""}, "['EXCHANGE'] must be a non-empty string."),
        ({"EXCHANGE": "amq.topic"}, "must not begin with 'amq.'"),
        ({"QUEUES": ["ledger"]}, "['QUEUES'] must be a dict of dicts"),
        (
            {"QUEUES": {"q": {"BINDING": []}}},
            "['BINDING'] is not a setting. Did you mean 'BINDINGS'",
        ),
        ({"QUEUES": {"q": {"BINDINGS": "#"}}}, "['BINDINGS'] must be a list of topic patterns"),
        ({"QUEUES": {"q": {"BINDINGS": ["a..b"]}}}, "['BINDINGS'] is wrong: 'a..b' is not"),
        ({"QUEUES": {"q": {"TYPE": "stream"}}}, "['TYPE'] must be 'quorum' or 'classic'."),
        ({"QUEUES": {"q": {"DELIVERY_LIMIT": 0}}}, "['DELIVERY_LIMIT'] must be a whole number"),
        ({"QUEUES": {"q": {"PARTITIONS": True}}}, "['PARTITIONS'] must be a whole number"),
        (
            {"QUEUES": {"q": {"RETRY_DELAYS": []}}},
            "['RETRY_DELAYS'] must be a list of whole seconds",
        ),
        ({"QUEUES": {"q": {"RETRY_DELAYS": [10, 1]}}}, "['RETRY_DELAYS'] must be ascending"),
        ({"QUEUES": {"q": {"RETRY_DELAYS": [0.5]}}}, "['RETRY_DELAYS'] must hold whole seconds"),
        ({"QUEUES": {"q": {"ARGUMENTS": 1}}}, "['ARGUMENTS'] must be a dict of queue arguments"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(settings: Any, problem: str) -> None:
    _, problems = read_topology(settings)
    assert len(problems) == 1
    assert problem in problems[0][0]
