"""outbox_topology on a real RabbitMQ: what it makes, finds, refuses to change, and needs."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any
from uuid import uuid4

import pika
import pytest
from django.core.management import CommandError, call_command

from django_outbox.brokers.rabbitmq.topology import Exchange, Queue
from django_outbox.brokers.rabbitmq.topology_options import topology
from tests.support.rabbitmq import Broker, Node

Settings = Callable[..., None]


@pytest.fixture
def ask_for(outbox_settings: Settings, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Settings with one queue of a unique name on a broker; what was made is removed afterwards."""

    def ask(broker: Broker, **options: Any) -> str:
        queue = f"ledger.{uuid4().hex[:8]}"
        outbox_settings(
            TOPOLOGY={
                "URL": broker.url,
                "EXCHANGE": f"{queue}.events",
                "QUEUES": {queue: {"BINDINGS": ["invoice.*"], "RETRY_DELAYS": [1], **options}},
            }
        )
        items = list(topology().items())

        def remove() -> None:
            for item in items:
                if isinstance(item, Queue):
                    broker.channel.queue_delete(item.name)
                elif isinstance(item, Exchange):
                    broker.channel.exchange_delete(item.name)

        request.addfinalizer(remove)
        return queue

    return ask


def run(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("outbox_topology", *arguments, stdout=out)
    return out.getvalue().splitlines()


def refused() -> tuple[list[str], str]:
    """What was printed and what the command ended with."""
    out = StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("outbox_topology", stdout=out)
    return out.getvalue().splitlines(), str(raised.value)


def states(lines: list[str]) -> dict[str, str]:
    """Name of the item -> what the command says of it."""
    return {" ".join(line.split()[2:]): line.split()[0] for line in lines}


def exists(broker: Broker, queue: str) -> bool:
    try:
        broker.channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    return True


def test_what_is_declared_is_there_and_declaring_it_again_changes_nothing(
    rabbitmq: Broker, ask_for: Callable[..., str]
) -> None:
    queue = ask_for(rabbitmq)
    first = states(run())
    assert first == {
        f"{queue}.events": "created",
        f"{queue}.events.dead": "created",
        f"{queue}.dead": "created",
        f"{queue}.events.dead --{queue}--> {queue}.dead": "bound",
        queue: "created",
        f"{queue}.retry.1s": "created",
        f"{queue}.events --invoice.*--> {queue}": "bound",
    }
    rabbitmq.channel.basic_publish(f"{queue}.events", "invoice.issued", b"kept")
    again = states(run())
    assert set(again.values()) == {"exists", "bound"}
    assert [body for _, body in rabbitmq.take(queue)] == [b"kept"]


def test_a_rejected_message_is_kept_in_the_dead_letter_queue(
    rabbitmq: Broker, ask_for: Callable[..., str]
) -> None:
    queue = ask_for(rabbitmq)
    run()
    rabbitmq.channel.basic_publish(f"{queue}.events", "invoice.issued", b"bad")
    for method, _, _ in rabbitmq.channel.consume(queue, inactivity_timeout=60):
        rabbitmq.channel.basic_reject(method.delivery_tag, requeue=False)
        break
    rabbitmq.channel.cancel()
    for method, properties, body in rabbitmq.channel.consume(
        f"{queue}.dead", inactivity_timeout=60
    ):
        assert method is not None, "it did not arrive"
        assert body == b"bad"
        assert properties.headers["x-first-death-queue"] == queue
        break
    rabbitmq.channel.cancel()


def test_a_dry_run_makes_nothing_and_says_what_is_missing(
    rabbitmq: Broker, ask_for: Callable[..., str]
) -> None:
    queue = ask_for(rabbitmq)
    found = states(run("--dry-run"))
    assert found[queue] == found[f"{queue}.events"] == found[f"{queue}.retry.1s"] == "missing"
    assert not exists(rabbitmq, queue)
    run()
    assert set(states(run("--dry-run")).values()) == {"exists", "to"}  # "to bind": nobody can ask


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_conflict_is_reported_in_the_brokers_words_and_left_as_it_is(
    rabbitmq: Broker, ask_for: Callable[..., str], dry_run: list[str]
) -> None:
    queue = ask_for(rabbitmq)
    rabbitmq.channel.queue_declare(queue, durable=True, arguments={"x-max-length": 7})
    rabbitmq.channel.basic_publish("", queue, b"kept")
    out = StringIO()
    with pytest.raises(CommandError, match="could not be made as configured"):
        call_command("outbox_topology", *dry_run, stdout=out)
    [line] = [line for line in out.getvalue().splitlines() if line.startswith("CONFLICT")]
    assert f" {queue} (406 PRECONDITION_FAILED - inequivalent arg" in line
    assert [body for _, body in rabbitmq.take(queue)] == [b"kept"]
    # What stands behind it was made all the same.
    assert exists(rabbitmq, f"{queue}.retry.1s") is (not dry_run)


def test_an_exchange_of_another_type_is_a_conflict(
    rabbitmq: Broker, ask_for: Callable[..., str]
) -> None:
    queue = ask_for(rabbitmq)
    rabbitmq.channel.exchange_declare(f"{queue}.events", "fanout", durable=True)
    lines, error = refused()
    assert [line.split()[:3] for line in lines if line.startswith("CONFLICT")] == [
        ["CONFLICT", "exchange", f"{queue}.events"]
    ]
    assert "1 of them could not be made" in error


def test_a_broker_that_is_away_is_named(outbox_settings: Settings) -> None:
    outbox_settings(
        TOPOLOGY={"URL": "amqp://somebody:secret@127.0.0.1:1/vhost", "SOCKET_TIMEOUT": 1}
    )
    lines, error = refused()
    assert lines == []
    assert "refused" in error
    assert "secret" not in error


def test_partitions_need_a_plugin_and_the_refusal_says_which(
    rabbitmq_node: Node, ask_for: Callable[..., str]
) -> None:
    ask_for(rabbitmq_node.broker, PARTITIONS=3)
    lines, _ = refused()
    found = [line for line in lines if line.startswith("REFUSED")]
    assert "rabbitmq-plugins enable rabbitmq_consistent_hash_exchange" in found[0]
    # The queues are there; what hangs on the exchange cannot be bound yet.
    assert {line.split()[1] for line in found} == {"exchange", "binding"}
