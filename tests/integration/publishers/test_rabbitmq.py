"""The publisher on a real broker, on good days. The bad ones are in tests/faults."""

import json
import os
import shutil
import subprocess
import threading
from collections import Counter

import pytest

from django_outbox.publishers.base import Outcome
from django_outbox.wire.amqp import from_amqp
from tests.support.publishing import make_message, make_messages, outcomes
from tests.support.threads import Worker


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_round_is_confirmed_and_arrives_in_order(rabbitmq, rabbitmq_publisher, kind):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange, queue_type=kind)
    sent = make_messages(1_000)
    receipts = rabbitmq_publisher(exchange).publish(sent)
    assert outcomes(receipts) == {Outcome.CONFIRMED: 1_000}
    assert {receipt.message_id for receipt in receipts} == {message.id for message in sent}
    assert rabbitmq.ids(queue) == [message.id for message in sent]


def test_a_message_arrives_as_it_was_sent(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    sent = make_message(
        body='{"name": "Ünal", "n": 1.0}',
        headers={"tenant": "acme", "n": 2**40, "none": None, "yes": True},
        aggregate_type="billing.invoice",
        aggregate_id="17",
        sequence=4,
        correlation_id="c-1",
        causation_id="c-0",
        schema_version=3,
    )
    rabbitmq_publisher(exchange).publish([sent])
    ((properties, body),) = rabbitmq.take(queue)
    assert from_amqp(properties, body) == sent
    assert properties.delivery_mode == 2
    assert properties.headers["ce-sequence"] == "0000000000000000004"


def test_the_topic_is_the_routing_key(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    invoices = rabbitmq.queue(exchange, "invoice.*")
    everything = rabbitmq.queue(exchange, "#")
    sent = [make_message(topic="invoice.issued"), make_message(topic="order.placed")]
    rabbitmq_publisher(exchange).publish(sent)
    assert rabbitmq.ids(invoices) == [sent[0].id]
    assert rabbitmq.ids(everything) == [sent[0].id, sent[1].id]


def test_an_empty_round_needs_no_broker(rabbitmq_publisher):
    assert rabbitmq_publisher("any", URL="amqp://127.0.0.1:1").publish([]) == []


def test_a_large_body_goes_in_many_frames(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    sent = [make_message(body=json.dumps("x" * 2_000_000)), make_message(1)]
    assert outcomes(rabbitmq_publisher(exchange).publish(sent)) == {Outcome.CONFIRMED: 2}
    assert [len(body) for _, body in rabbitmq.take(queue)] == [2_000_002, 13]


def test_two_threads_publish_at_once_over_one_connection(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    shared = rabbitmq_publisher(exchange)
    rounds = [make_messages(200) for _ in range(20)]
    start = threading.Barrier(2)

    def publish_every_second_round(first):
        start.wait(30)
        return [shared.publish(round_) for round_ in rounds[first::2]]

    workers = [Worker(publish_every_second_round, first) for first in (0, 1)]
    answered = [worker.result() for worker in workers]
    for first, receipts in enumerate(answered):
        for sent, received in zip(rounds[first::2], receipts, strict=True):
            assert {r.message_id for r in received} == {message.id for message in sent}
            assert outcomes(received) == {Outcome.CONFIRMED: 200}
    arrived = rabbitmq.ids(queue)
    assert Counter(arrived) == Counter(message.id for round_ in rounds for message in round_)
    for round_ in rounds:
        ids = {message.id for message in round_}
        assert [i for i in arrived if i in ids] == [message.id for message in round_]


def test_a_publisher_can_be_used_after_it_was_closed(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    reused = rabbitmq_publisher(exchange)
    reused.publish([make_message()])
    reused.close()
    assert outcomes(reused.publish([make_message()])) == {Outcome.CONFIRMED: 1}
    assert rabbitmq.count(queue) == 2


# Python 3.12 warns of every fork in a process with threads; that is what is tried here.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_after_a_fork_parent_and_child_have_connections_of_their_own(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    shared = rabbitmq_publisher(exchange)
    assert outcomes(shared.publish([make_message()])) == {Outcome.CONFIRMED: 1}
    rabbitmq.disconnect()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sent = make_messages(50)
            code = 0 if outcomes(shared.publish(sent)) == {Outcome.CONFIRMED: 50} else 2
            shared.close()
        finally:
            os._exit(code)
    assert outcomes(shared.publish(make_messages(50))) == {Outcome.CONFIRMED: 50}
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert outcomes(shared.publish([make_message()])) == {Outcome.CONFIRMED: 1}
    assert rabbitmq.count(queue) == 102


def test_the_probe_says_nothing_where_all_is_well(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    assert rabbitmq_publisher(exchange).probe() == ""


def test_the_second_host_is_taken_when_the_first_does_not_answer(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    both = rabbitmq_publisher(exchange, URL=["amqp://127.0.0.1:1", rabbitmq.url])
    assert outcomes(both.publish([make_message()])) == {Outcome.CONFIRMED: 1}
    assert rabbitmq.count(queue) == 1


@pytest.mark.skipif(shutil.which("rabbitmqctl") is None, reason="asks rabbitmqctl")
def test_the_connection_has_a_name_that_tells_host_and_process(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    rabbitmq_publisher(exchange).probe()
    listed = subprocess.run(
        ["rabbitmqctl", "-q", "list_connections", "client_properties"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert f":{os.getpid()}" in listed
    assert "django_outbox test" in listed


def test_unroutable_messages_pass_where_mandatory_is_off(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    receipts = rabbitmq_publisher(exchange, MANDATORY=False).publish([make_message()])
    assert outcomes(receipts) == {Outcome.CONFIRMED: 1}
