"""The broker is at fault: no message is charged, none is lost, and it goes on when the broker does."""

import logging
import time

import pytest

from django_outbox.publishers.base import Outcome
from django_outbox.publishers.rabbitmq import RabbitMQPublisher
from tests.support.publishing import make_messages, outcomes
from tests.support.threads import Worker, wait_until


@pytest.fixture
def through_proxy(rabbitmq, rabbitmq_publisher):
    """A proxy in front of the broker, and what makes a publisher that goes through it."""
    with rabbitmq.proxy() as proxy:
        exchange = rabbitmq.exchange()
        queue = rabbitmq.queue(exchange)

        def make(**options):
            return rabbitmq_publisher(exchange, URL=rabbitmq.through(proxy), **options)

        yield proxy, queue, make


def test_a_refused_connection_is_an_outage(rabbitmq_publisher):
    publisher = rabbitmq_publisher("any", URL="amqp://127.0.0.1:1")
    receipts = publisher.publish(make_messages(3))
    assert outcomes(receipts) == {Outcome.BROKER_DOWN: 3}
    assert receipts[0].reason == "127.0.0.1:1: connection refused"
    assert publisher.probe() == "127.0.0.1:1: connection refused"


def test_refused_credentials_are_an_outage_and_the_reason_holds_no_password(
    rabbitmq, rabbitmq_publisher, caplog
):
    caplog.set_level(logging.DEBUG)
    url = f"amqp://nobody:s3cr3t-w0rd@{rabbitmq.host}:{rabbitmq.port}/"
    publisher = rabbitmq_publisher("any", URL=url)
    (receipt,) = publisher.publish(make_messages(1))
    assert receipt.outcome is Outcome.BROKER_DOWN
    assert "refused the user name or the password" in receipt.reason
    assert "s3cr3t" not in receipt.reason + publisher.probe() + repr(publisher) + caplog.text


def test_a_missing_virtual_host_is_an_outage_and_named(rabbitmq_publisher):
    publisher = rabbitmq_publisher("any", VIRTUAL_HOST="no.such.vhost")
    (receipt,) = publisher.publish(make_messages(1))
    assert receipt.outcome is Outcome.BROKER_DOWN
    assert "vhost no.such.vhost not found" in receipt.reason
    assert "no.such.vhost" in publisher.probe()


def test_a_host_that_takes_connections_and_says_nothing_is_an_outage(through_proxy):
    proxy, _, make = through_proxy
    proxy.stall()
    publisher = make(STACK_TIMEOUT=1.5)
    receipts = publisher.publish(make_messages(3))
    assert outcomes(receipts) == {Outcome.BROKER_DOWN: 3}
    assert "no answer in time" in receipts[0].reason
    proxy.flow()
    assert outcomes(publisher.publish(make_messages(3))) == {Outcome.CONFIRMED: 3}


@pytest.mark.parametrize("after", [1_000, 100_000, 200_000])
def test_a_connection_cut_in_mid_window_loses_and_charges_nothing(rabbitmq, through_proxy, after):
    proxy, queue, make = through_proxy
    publisher = make()
    publisher.publish(make_messages(1))
    rabbitmq.take(queue)
    sent = make_messages(500, headers={"padding": "x" * 200})
    proxy.cut_after(after)
    receipts = publisher.publish(sent)
    assert set(outcomes(receipts)) <= {Outcome.CONFIRMED, Outcome.BROKER_DOWN}
    assert outcomes(receipts)[Outcome.BROKER_DOWN]
    assert outcomes(receipts).total() == 500
    unconfirmed = {r.message_id for r in receipts if r.outcome is Outcome.BROKER_DOWN}
    again = publisher.publish([message for message in sent if message.id in unconfirmed])
    assert outcomes(again) == {Outcome.CONFIRMED: len(unconfirmed)}
    arrived = rabbitmq.ids(queue)
    assert set(arrived) == {message.id for message in sent}
    twice = {message_id for message_id in arrived if arrived.count(message_id) > 1}
    assert twice <= unconfirmed


def test_a_connection_that_dies_while_idle_is_replaced_before_anything_is_sent(through_proxy):
    proxy, _, make = through_proxy
    publisher = make()
    assert outcomes(publisher.publish(make_messages(1))) == {Outcome.CONFIRMED: 1}
    proxy.cut()
    wait_until(lambda: publisher._channel.is_over, "the I/O thread has noticed")
    assert outcomes(publisher.publish(make_messages(5))) == {Outcome.CONFIRMED: 5}
    assert proxy.accepted == 2


def test_a_missed_heartbeat_while_idle_ends_the_connection_and_the_next_round_has_a_new_one(
    rabbitmq, through_proxy
):
    proxy, queue, make = through_proxy
    publisher = make(HEARTBEAT=1)
    assert outcomes(publisher.publish(make_messages(1))) == {Outcome.CONFIRMED: 1}
    stalled = publisher._channel
    proxy.stall()
    wait_until(lambda: stalled.is_over, "the heartbeat is missed")
    proxy.flow()
    assert outcomes(publisher.publish(make_messages(5))) == {Outcome.CONFIRMED: 5}
    assert rabbitmq.count(queue) == 6


def test_heartbeats_keep_an_idle_connection_alive(through_proxy):
    proxy, _, make = through_proxy
    publisher = make(HEARTBEAT=1)
    publisher.publish(make_messages(1))
    seen = proxy.forwarded
    # The broker gives a silent client up after two intervals; wait for many heartbeats of ours.
    wait_until(lambda: proxy.forwarded >= seen + 8 * 12, "twelve heartbeats were sent")
    assert outcomes(publisher.publish(make_messages(1))) == {Outcome.CONFIRMED: 1}
    assert proxy.accepted == 1


def test_a_broker_that_falls_silent_in_mid_window_is_an_outage_within_the_confirm_timeout(
    rabbitmq, through_proxy
):
    proxy, queue, make = through_proxy
    publisher = make(CONFIRM_TIMEOUT=3)
    publisher.publish(make_messages(1))
    proxy.stall()
    receipts = publisher.publish(make_messages(50))
    assert outcomes(receipts) == {Outcome.BROKER_DOWN: 50}
    assert "does not answer" in receipts[0].reason
    proxy.flow()
    assert outcomes(publisher.publish(make_messages(50))) == {Outcome.CONFIRMED: 50}
    assert rabbitmq.count(queue) >= 51


def test_a_broker_that_is_stopped_for_a_while_is_used_again_without_a_restart(
    rabbitmq, through_proxy
):
    proxy, queue, make = through_proxy
    publisher = make()
    sent = make_messages(30)
    assert outcomes(publisher.publish(sent[:10])) == {Outcome.CONFIRMED: 10}
    proxy.refuse()
    for _ in range(3):
        assert outcomes(publisher.publish(sent[10:])) == {Outcome.BROKER_DOWN: 20}
        assert "connection refused" in publisher.probe()
    proxy.accept()
    assert publisher.probe() == ""
    assert outcomes(publisher.publish(sent[10:])) == {Outcome.CONFIRMED: 20}
    assert rabbitmq.ids(queue) == [message.id for message in sent]


def test_two_threads_share_one_outage_and_one_new_connection(rabbitmq, through_proxy):
    proxy, queue, make = through_proxy
    publisher = make()
    sent = [make_messages(100) for _ in range(2)]

    def publish_until_confirmed(messages):
        left, rounds = messages, 0
        while left:
            receipts = publisher.publish(left)
            assert set(outcomes(receipts)) <= {Outcome.CONFIRMED, Outcome.BROKER_DOWN}
            done = {r.message_id for r in receipts if r.outcome is Outcome.CONFIRMED}
            left, rounds = [m for m in left if m.id not in done], rounds + 1
            time.sleep(0.01)
        return rounds

    proxy.cut_after(30_000)
    workers = [Worker(publish_until_confirmed, messages) for messages in sent]
    for worker in workers:
        worker.result()
    assert set(rabbitmq.ids(queue)) == {m.id for messages in sent for m in messages}


@pytest.fixture
def on_node(rabbitmq_node):
    """A publisher, its queue and the node that may be starved and stopped."""
    broker = rabbitmq_node.broker
    exchange = broker.exchange()
    queue = broker.queue(exchange)
    publisher = RabbitMQPublisher("test", {"URL": broker.url, "EXCHANGE": exchange})
    yield publisher, queue, rabbitmq_node
    publisher.close()
    broker.disconnect()


def test_a_memory_alarm_is_an_outage_until_it_is_over(on_node):
    publisher, queue, node = on_node
    sent = make_messages(200)
    publisher.publish(sent[:1])
    with node.memory_alarm():
        receipts = publisher.publish(sent[1:])
        assert set(outcomes(receipts)) <= {Outcome.CONFIRMED, Outcome.BROKER_DOWN}
        assert outcomes(receipts)[Outcome.BROKER_DOWN]
        down = [r for r in receipts if r.outcome is Outcome.BROKER_DOWN]
        assert "takes no messages: low on memory" in down[0].reason
        assert "low on memory" in publisher.probe()
        assert outcomes(publisher.publish(sent[1:3])) == {Outcome.BROKER_DOWN: 2}
    wait_until(lambda: publisher.probe() == "", "the alarm is over")
    left = {r.message_id for r in down}
    again = publisher.publish([message for message in sent if message.id in left])
    assert outcomes(again) == {Outcome.CONFIRMED: len(left)}
    assert set(node.broker.ids(queue)) == {message.id for message in sent}


def test_a_probe_on_a_new_connection_sees_the_alarm_as_well(on_node):
    publisher, queue, node = on_node
    with node.memory_alarm():
        assert "low on memory" in publisher.probe()
    wait_until(lambda: publisher.probe() == "", "the alarm is over")
    assert node.broker.count(queue) == 0


def test_a_node_that_is_stopped_and_started_again(on_node):
    publisher, queue, node = on_node
    sent = make_messages(20)
    assert outcomes(publisher.publish(sent[:10])) == {Outcome.CONFIRMED: 10}
    node.broker.disconnect()
    node.control("stop_app")
    try:
        receipts = publisher.publish(sent[10:])
        assert outcomes(receipts) == {Outcome.BROKER_DOWN: 10}
        assert publisher.probe() != ""
    finally:
        node.control("start_app")
    wait_until(lambda: publisher.probe() == "", "the node is back")
    assert outcomes(publisher.publish(sent[10:])) == {Outcome.CONFIRMED: 10}
    assert set(node.broker.ids(queue)) == {message.id for message in sent}


def test_a_round_never_outlives_its_bound(through_proxy):
    proxy, _queue, make = through_proxy
    publisher = make(CONFIRM_TIMEOUT=2, STACK_TIMEOUT=2)
    publisher.publish(make_messages(1))
    proxy.stall()
    worker = Worker(publisher.publish, make_messages(2_000, headers={"x": "y" * 5_000}))
    wait_until(lambda: not worker.is_at_work, "publish has returned")
    assert outcomes(worker.result()) == {Outcome.BROKER_DOWN: 2_000}


def test_a_slow_network_charges_nobody_for_what_it_did_not_carry_in_time(rabbitmq, through_proxy):
    proxy, queue, make = through_proxy
    publisher = make(CONFIRM_TIMEOUT=2)
    publisher.publish(make_messages(1))
    proxy.slow_down(0.1)
    sent = make_messages(2_000, headers={"padding": "x" * 5_000})
    receipts = publisher.publish(sent)
    assert set(outcomes(receipts)) == {Outcome.CONFIRMED, Outcome.NOT_SENT}
    proxy.slow_down(0)
    left = {r.message_id for r in receipts if r.outcome is Outcome.NOT_SENT}
    again = publisher.publish([message for message in sent if message.id in left])
    assert outcomes(again) == {Outcome.CONFIRMED: len(left)}
    assert {message.id for message in sent} <= set(rabbitmq.ids(queue))


def test_closing_while_a_round_waits_charges_nobody(through_proxy):
    proxy, _queue, make = through_proxy
    publisher = make()
    publisher.publish(make_messages(1))
    proxy.stall()
    worker = Worker(publisher.publish, make_messages(10))
    wait_until(lambda: publisher._channel._rounds, "the round is under way")
    publisher.close()
    assert outcomes(worker.result()) == {Outcome.NOT_SENT: 10}
