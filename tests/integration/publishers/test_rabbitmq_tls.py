"""TLS to a real broker: what is trusted, what is not, and what the reasons say."""

import pytest

from django_outbox.publishers.base import Outcome
from django_outbox.publishers.rabbitmq import RabbitMQPublisher
from tests.support.certificates import Authority
from tests.support.publishing import make_messages, outcomes


@pytest.fixture
def over_tls(rabbitmq_node):
    """Makes publishers that reach the node's TLS port by a host name; and the queue they reach."""
    broker = rabbitmq_node.broker
    exchange = broker.exchange()
    queue = broker.queue(exchange)
    made = []

    def make(host="localhost", **tls):
        url = f"amqps://{host}:{rabbitmq_node.tls_port}/"
        made.append(RabbitMQPublisher("test", {"URL": url, "EXCHANGE": exchange, "TLS": tls}))
        return made[-1]

    yield make, rabbitmq_node, queue
    for publisher in made:
        publisher.close()
    broker.disconnect()


def test_a_round_goes_over_tls(over_tls):
    make, node, queue = over_tls
    publisher = make(ca=node.authority.path)
    sent = make_messages(1_000, headers={"padding": "x" * 300})
    assert outcomes(publisher.publish(sent)) == {Outcome.CONFIRMED: 1_000}
    assert node.broker.ids(queue) == [message.id for message in sent]
    assert publisher.probe() == ""


def test_a_client_certificate_is_shown(over_tls):
    make, node, queue = over_tls
    certificate, key = node.authority.issue("client")
    publisher = make(ca=node.authority.path, cert=certificate, key=key)
    assert outcomes(publisher.publish(make_messages(1))) == {Outcome.CONFIRMED: 1}
    assert "CN=client" in node.output("list_connections", "peer_cert_subject")
    assert node.broker.count(queue) == 1


def test_an_unknown_authority_is_an_outage_and_named(over_tls, tmp_path):
    make, _, _ = over_tls
    (receipt,) = make(ca=Authority(tmp_path, "stranger").path).publish(make_messages(1))
    assert receipt.outcome is Outcome.BROKER_DOWN
    assert "certificate is not trusted" in receipt.reason


def test_a_certificate_for_another_name_is_an_outage_unless_the_name_is_given(over_tls):
    make, node, _ = over_tls
    assert "certificate is not trusted" in make("127.0.0.1", ca=node.authority.path).probe()
    named = make("127.0.0.1", ca=node.authority.path, server_hostname="localhost")
    assert named.probe() == ""


def test_verification_can_be_switched_off(over_tls):
    make, _, _ = over_tls
    assert outcomes(make("127.0.0.1", verify=False).publish(make_messages(1))) == {
        Outcome.CONFIRMED: 1
    }


def test_plain_amqp_to_a_tls_port_is_an_outage(over_tls, rabbitmq_node):
    url = f"amqp://127.0.0.1:{rabbitmq_node.tls_port}/"
    publisher = RabbitMQPublisher("test", {"URL": url, "EXCHANGE": "any"})
    (receipt,) = publisher.publish(make_messages(1))
    assert receipt.outcome is Outcome.BROKER_DOWN
    publisher.close()


def test_tls_to_a_plain_port_is_an_outage(rabbitmq_node):
    url = f"amqps://127.0.0.1:{rabbitmq_node.port}/"
    publisher = RabbitMQPublisher("test", {"URL": url, "EXCHANGE": "any"})
    (receipt,) = publisher.publish(make_messages(1))
    assert receipt.outcome is Outcome.BROKER_DOWN
    assert "TLS failed" in receipt.reason
    publisher.close()


def test_a_certificate_that_has_gone_since_is_an_outage(over_tls, tmp_path):
    make, node, _ = over_tls
    copy = tmp_path / "ca.pem"
    copy.write_bytes(node.authority.path.read_bytes())
    publisher = make(ca=copy)
    copy.unlink()
    (receipt,) = publisher.publish(make_messages(1))
    assert receipt.outcome is Outcome.BROKER_DOWN
    assert "TLS files cannot be used: FileNotFoundError" in receipt.reason
    assert "TLS files cannot be used" in publisher.probe()
