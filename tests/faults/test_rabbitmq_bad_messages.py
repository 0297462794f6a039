"""One message is at fault: only it is charged, its neighbours are neither lost nor charged."""

import shutil
import subprocess
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from django_outbox.publishers.base import Outcome
from django_outbox.publishers.rabbitmq import RabbitMQPublisher
from tests.support.publishing import by_message, make_message, make_messages, outcomes
from tests.support.rabbitmq import NODE_FRAME_MAX, NODE_MAX_MESSAGE_SIZE
from tests.support.threads import Worker


def test_a_missing_exchange_rejects_its_messages_and_is_no_outage(rabbitmq, rabbitmq_publisher):
    publisher = rabbitmq_publisher("no.such.exchange")
    receipts = publisher.publish(make_messages(50))
    assert outcomes(receipts) == {Outcome.REJECTED: 50}
    assert "no exchange 'no.such.exchange'" in receipts[0].reason
    assert publisher.probe() == ""


def test_a_missing_exchange_that_is_declared_later_takes_messages(rabbitmq, rabbitmq_publisher):
    name = f"late.{uuid4().hex[:8]}"
    publisher = rabbitmq_publisher(name)
    assert outcomes(publisher.publish(make_messages(3))) == {Outcome.REJECTED: 3}
    rabbitmq.channel.exchange_declare(name, "topic", durable=True)
    queue = rabbitmq.queue(name)
    assert outcomes(publisher.publish(make_messages(3))) == {Outcome.CONFIRMED: 3}
    assert rabbitmq.count(queue) == 3


def test_a_message_that_no_queue_takes_is_rejected_and_no_other(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange, "invoice.*")
    sent = make_messages(100)
    stray = {30: "order.placed", 31: "order.placed", 77: "payment.made"}
    sent = [replace(m, topic=stray.get(i, m.topic)) for i, m in enumerate(sent)]
    receipts = by_message(rabbitmq_publisher(exchange).publish(sent))
    for i, message in enumerate(sent):
        expected = Outcome.REJECTED if i in stray else Outcome.CONFIRMED
        assert receipts[message.id].outcome is expected
    assert "no queue is bound" in receipts[sent[30].id].reason
    assert rabbitmq.ids(queue) == [m.id for i, m in enumerate(sent) if i not in stray]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_full_queue_fails_the_messages_it_refuses_and_no_other(
    rabbitmq, rabbitmq_publisher, kind
):
    exchange = rabbitmq.exchange()
    full = rabbitmq.queue(
        exchange, "full.#", queue_type=kind, max_length=1, overflow="reject-publish"
    )
    roomy = rabbitmq.queue(exchange, "roomy.#", queue_type=kind)
    publisher = rabbitmq_publisher(exchange)
    # A quorum queue notices its length late: fill it until it refuses.
    while outcomes(publisher.publish(make_messages(5, topic="full.x")))[Outcome.FAILED] < 5:
        pass
    sent = [make_message(n, topic="full.x" if n % 5 == 0 else "roomy.x") for n in range(100)]
    receipts = by_message(publisher.publish(sent))
    for message in sent:
        expected = Outcome.FAILED if message.topic == "full.x" else Outcome.CONFIRMED
        assert receipts[message.id].outcome is expected
    assert "nack" in receipts[sent[0].id].reason
    assert rabbitmq.ids(roomy) == [m.id for m in sent if m.topic == "roomy.x"]
    assert not set(rabbitmq.ids(full)) & {m.id for m in sent}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"topic": "é" * 128}, "topic"),
        ({"correlation_id": "c" * 256}, "correlation_id"),
        ({"headers": {"n": 2**63}}, "header 'n'"),
        ({"headers": {"n": 1.5}}, "header 'n'"),
        ({"headers": {"n": {"deep": object()}}}, "header 'n'"),
        ({"headers": {"n" * 256: 1}}, "header name"),
        ({"aggregate_id": "\ud800"}, "subject"),
        ({"body": '"\ud800"'}, "body"),
    ],
)
def test_what_amqp_cannot_encode_is_rejected_and_no_other(
    rabbitmq, rabbitmq_publisher, change, part
):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    sent = make_messages(20)
    sent[7] = replace(sent[7], **change)
    receipts = by_message(rabbitmq_publisher(exchange).publish(sent))
    assert receipts[sent[7].id].outcome is Outcome.REJECTED
    assert part in receipts[sent[7].id].reason
    good = [message for i, message in enumerate(sent) if i != 7]
    assert {receipts[m.id].outcome for m in good} == {Outcome.CONFIRMED}
    assert rabbitmq.ids(queue) == [message.id for message in good]


@pytest.fixture
def low_limits(rabbitmq_node):
    """A publisher, its exchange's queue and the node whose limits are low."""
    broker = rabbitmq_node.broker
    exchange = broker.exchange()
    queue = broker.queue(exchange)
    publisher = RabbitMQPublisher("test", {"URL": broker.url, "EXCHANGE": exchange})
    yield publisher, queue, broker
    publisher.close()
    broker.disconnect()


def too_large(number):
    return make_message(number, body='"' + "x" * (NODE_MAX_MESSAGE_SIZE + 1) + '"')


@pytest.mark.parametrize("where", [[0], [250], [499], [3, 4, 400], list(range(0, 40, 2))])
def test_a_message_over_the_broker_s_limit_is_rejected_and_no_other(low_limits, where):
    publisher, queue, broker = low_limits
    sent = make_messages(500)
    for position in where:
        sent[position] = too_large(position)
    receipts = by_message(publisher.publish(sent))
    for position, message in enumerate(sent):
        expected = Outcome.REJECTED if position in where else Outcome.CONFIRMED
        assert receipts[message.id].outcome is expected, receipts[message.id]
    assert "406 PRECONDITION_FAILED" in receipts[sent[where[0]].id].reason
    arrived = broker.ids(queue)
    assert set(arrived) == {m.id for i, m in enumerate(sent) if i not in where}
    assert outcomes(publisher.publish(make_messages(5))) == {Outcome.CONFIRMED: 5}


def test_a_bad_message_of_one_thread_does_not_charge_the_other_s(low_limits):
    publisher, queue, broker = low_limits
    good = [make_messages(100) for _ in range(10)]
    bad = [[*make_messages(50), too_large(n), *make_messages(49)] for n in range(10)]
    workers = [
        Worker(lambda rounds: [publisher.publish(sent) for sent in rounds], rounds)
        for rounds in (good, bad)
    ]
    answered = [worker.result() for worker in workers]
    for receipts in answered[0]:
        assert outcomes(receipts) == {Outcome.CONFIRMED: 100}
    for sent, receipts in zip(bad, answered[1], strict=True):
        assert outcomes(receipts) == {Outcome.CONFIRMED: 99, Outcome.REJECTED: 1}
        assert by_message(receipts)[sent[50].id].outcome is Outcome.REJECTED
    expected = {m.id for sent in (*good, *bad) for m in sent} - {sent[50].id for sent in bad}
    assert set(broker.ids(queue)) == expected


def test_headers_over_the_broker_s_frame_are_rejected_and_the_connection_stays(low_limits):
    publisher, queue, broker = low_limits
    sent = make_messages(20)
    sent[9] = make_message(9, headers={"large": "x" * NODE_FRAME_MAX})
    receipts = by_message(publisher.publish(sent))
    assert receipts[sent[9].id].outcome is Outcome.REJECTED
    assert f"frame_max ({NODE_FRAME_MAX:,})" in receipts[sent[9].id].reason
    assert broker.ids(queue) == [m.id for i, m in enumerate(sent) if i != 9]


def test_a_header_that_makes_the_broker_close_the_channel_is_found(rabbitmq, rabbitmq_publisher):
    """CC must be a list; as a string it is a precondition failure. Enqueue refuses the name."""
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    sent = make_messages(64)
    sent[40] = make_message(40, headers={"CC": "x"})
    receipts = by_message(rabbitmq_publisher(exchange).publish(sent))
    assert receipts[sent[40].id].outcome is Outcome.REJECTED
    assert outcomes(receipts.values()) == {Outcome.CONFIRMED: 63, Outcome.REJECTED: 1}
    assert set(rabbitmq.ids(queue)) == {m.id for i, m in enumerate(sent) if i != 40}


def test_a_message_that_makes_the_broker_close_the_whole_connection_is_found(
    low_limits, monkeypatch
):
    # Without our own look at frame_max such a message would get this far.
    monkeypatch.setattr("django_outbox.brokers.rabbitmq.channel._FRAME_OVERHEAD", -1_000_000)
    publisher, queue, broker = low_limits
    sent = make_messages(40)
    sent[9] = make_message(9, headers={"large": "x" * NODE_FRAME_MAX})
    receipts = by_message(publisher.publish(sent))
    assert receipts[sent[9].id].outcome is Outcome.REJECTED
    assert "501" in receipts[sent[9].id].reason
    assert outcomes(receipts.values()) == {Outcome.CONFIRMED: 39, Outcome.REJECTED: 1}
    assert set(broker.ids(queue)) == {m.id for i, m in enumerate(sent) if i != 9}


@pytest.mark.skipif(shutil.which("rabbitmqctl") is None, reason="makes a user with rabbitmqctl")
def test_a_topic_that_the_user_may_not_write_is_rejected_and_no_other(rabbitmq, rabbitmq_publisher):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    user = f"outbox_{uuid4().hex[:8]}"
    vhost = urlsplit(rabbitmq.url).path[1:]

    def control(*arguments):
        subprocess.run(["rabbitmqctl", "-q", *arguments], check=True, timeout=60)

    control("add_user", user, "pass-word")
    try:
        control("set_permissions", "-p", vhost, user, "", ".*", ".*")
        control("set_topic_permissions", "-p", vhost, user, exchange, "^invoice", ".*")
        parts = urlsplit(rabbitmq.url)
        netloc = f"{user}:pass-word@{parts.netloc.rpartition('@')[2]}"
        publisher = rabbitmq_publisher(exchange, URL=urlunsplit(parts._replace(netloc=netloc)))
        sent = make_messages(20)
        sent[5] = replace(sent[5], topic="order.placed")
        receipts = by_message(publisher.publish(sent))
        assert receipts[sent[5].id].outcome is Outcome.REJECTED
        assert "403 ACCESS_REFUSED" in receipts[sent[5].id].reason
        assert outcomes(receipts.values()) == {Outcome.CONFIRMED: 19, Outcome.REJECTED: 1}
        assert publisher.probe() == ""
        control("set_permissions", "-p", vhost, user, "", "", ".*")
        receipts = publisher.publish(make_messages(10))
        assert outcomes(receipts) == {Outcome.REJECTED: 10}
        assert f"access to exchange '{exchange}'" in receipts[0].reason
    finally:
        control("delete_user", user)
    assert set(rabbitmq.ids(queue)) == {m.id for i, m in enumerate(sent) if i != 5}


def test_a_message_whose_queue_never_confirms_fails_and_no_other(rabbitmq_node):
    broker = rabbitmq_node.broker
    exchange = broker.exchange()
    stuck = broker.queue(exchange, "stuck.#")
    healthy = broker.queue(exchange, "healthy.#")
    options = {"URL": broker.url, "EXCHANGE": exchange, "CONFIRM_TIMEOUT": 4}
    publisher = RabbitMQPublisher("test", options)
    sent = [make_message(n, topic="stuck.x" if n == 3 else "healthy.x") for n in range(20)]
    try:
        with rabbitmq_node.suspended(stuck):
            receipts = by_message(publisher.publish(sent))
            again = publisher.publish(make_messages(5, topic="healthy.x"))
        assert receipts[sent[3].id].outcome is Outcome.FAILED
        assert "no confirm within 4 s" in receipts[sent[3].id].reason
        assert outcomes(receipts.values()) == {Outcome.CONFIRMED: 19, Outcome.FAILED: 1}
        assert outcomes(again) == {Outcome.CONFIRMED: 5}
        assert broker.count(healthy) == 24
    finally:
        publisher.close()
        broker.disconnect()
