from datetime import timedelta

import pytest

from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.publishers.rabbitmq import RabbitMQPublisher

WHERE = "OUTBOX['PUBLISHERS']['default']"
GOOD = {"URL": "amqp://app:s3cr3t-w0rd@mq.example.com/billing", "EXCHANGE": "domain.events"}


def read(**options):
    found, problems = read_connection_options({**GOOD, **options}, WHERE)
    assert problems == []
    return found


def parameters(**options):
    return read(**options).parameters("test")


def problems(**options):
    given = {key: value for key, value in {**GOOD, **options}.items() if value is not None}
    return RabbitMQPublisher.check("default", given)


def test_a_url_says_everything():
    (made,) = parameters(URL="amqp://app:s3cr3t%2Fw0rd@mq.example.com:5673/%2Fbilling")
    assert (made.host, made.port, made.virtual_host) == ("mq.example.com", 5673, "/billing")
    assert (made.credentials.username, made.credentials.password) == ("app", "s3cr3t/w0rd")
    assert made.ssl_options is None


def test_what_a_url_leaves_out_is_what_rabbitmq_takes_for_granted():
    (made,) = parameters(URL="amqp://mq.example.com")
    assert (made.port, made.virtual_host, made.credentials.username) == (5672, "/", "guest")


def test_several_hosts_keep_their_order_and_share_the_time():
    options = read(URL=["amqp://one", "amqp://two:5673/v"], STACK_TIMEOUT=timedelta(seconds=6))
    made = options.parameters("test")
    assert [(m.host, m.port, m.virtual_host) for m in made] == [
        ("one", 5672, "/"),
        ("two", 5673, "v"),
    ]
    assert [m.stack_timeout for m in made] == [3, 3]
    assert all(m.socket_timeout <= m.stack_timeout for m in made)
    assert options.connect_timeout == 6


def test_a_time_in_a_url_counts_for_how_long_a_publish_may_take():
    options = {"EXCHANGE": "events", "CONFIRM_TIMEOUT": 5, "STACK_TIMEOUT": 8}
    publisher = RabbitMQPublisher(
        "default", {**options, "URL": ["amqp://one?stack_timeout=20", "amqp://two"]}
    )
    assert publisher.longest_publish == timedelta(seconds=20 / 2 + 8 / 2 + 5 + 1)


def test_options_and_query_parameters_reach_pika():
    made = parameters(
        URL="amqp://one?heartbeat=7&blocked_connection_timeout=9",
        HEARTBEAT=60,
        SOCKET_TIMEOUT=1.5,
        VIRTUAL_HOST="v",
        CLIENT_PROPERTIES={"product": "billing"},
    )[0]
    assert (made.heartbeat, made.blocked_connection_timeout) == (7, 9)
    assert (made.socket_timeout, made.virtual_host) == (1.5, "v")
    assert made.client_properties["product"] == "billing"
    assert made.client_properties["connection_name"].startswith("test ")


def test_amqps_checks_the_certificate_and_the_name_unless_told_otherwise():
    (made,) = parameters(URL="amqps://mq.example.com")
    assert made.port == 5671
    assert made.ssl_options.context.check_hostname
    assert made.ssl_options.server_hostname == "mq.example.com"
    (trusting,) = parameters(
        URL="amqps://10.0.0.1", TLS={"verify": False, "server_hostname": "mq.internal"}
    )
    assert not trusting.ssl_options.context.check_hostname
    assert trusting.ssl_options.server_hostname == "mq.internal"


def test_good_options_have_no_problems():
    assert problems() == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"URL": None}, "needs 'URL'"),
        ({"URL": 7}, "['URL'] must be a URL or a list of URLs"),
        ({"URL": []}, "['URL'] must be a URL or a list of URLs"),
        ({"URL": "redis://h"}, "['URL'] must begin with amqp:// or amqps://"),
        ({"URL": "mq.example.com"}, "['URL'] must begin with amqp:// or amqps://"),
        ({"URL": "amqp://"}, "['URL'] names no host"),
        ({"URL": "amqp://app@h"}, "['URL'] needs both a user name and a password"),
        ({"URL": "amqp://app:s3cr3t-w0rd/x@h"}, "['URL'] is no URL"),
        ({"URL": "amqp://h/a/b"}, "['URL'] has more than a virtual host"),
        ({"URL": "amqp://h/a?heartbeat=x"}, "['URL'] has a parameter 'heartbeat'"),
        ({"URL": "amqp://h/a?ssl_options={}"}, "['URL'] has a parameter that is not known"),
        ({"URL": ["amqp://h", "http://h"]}, "['URL'] must begin with"),
        ({"HEARTBEAT": 0}, "['HEARTBEAT'] must be a whole number"),
        ({"HEARTBEAT": 1.5}, "['HEARTBEAT'] must be a whole number"),
        ({"SOCKET_TIMEOUT": "4"}, "['SOCKET_TIMEOUT'] must be a timedelta or a number"),
        ({"STACK_TIMEOUT": 0}, "['STACK_TIMEOUT'] must be more than 0 seconds"),
        ({"BLOCKED_CONNECTION_TIMEOUT": True}, "['BLOCKED_CONNECTION_TIMEOUT'] must be"),
        ({"CONFIRM_TIMEOUT": timedelta(0)}, "['CONFIRM_TIMEOUT'] must be more than 0 seconds"),
        ({"VIRTUAL_HOST": ""}, "['VIRTUAL_HOST'] must be a non-empty string"),
        ({"CLIENT_PROPERTIES": []}, "['CLIENT_PROPERTIES'] must be a dict"),
        ({"EXCHANGE": None}, "needs 'EXCHANGE'"),
        ({"EXCHANGE": ""}, "['EXCHANGE'] must be a non-empty string"),
        ({"EXCHANGE": "é" * 128}, "['EXCHANGE'] is longer than 255 bytes"),
        ({"MANDATORY": "yes"}, "['MANDATORY'] must be True or False"),
        ({"TLS": {"ca": "/no/such/file"}, "URL": "amqps://h"}, "['TLS'] ['ca'] is not a file"),
        ({"TLS": {"verfy": False}, "URL": "amqps://h"}, "Did you mean 'verify'?"),
        ({"TLS": {"verify": "no"}, "URL": "amqps://h"}, "['verify'] must be True or False"),
        ({"TLS": {"ca": __file__}, "URL": "amqps://h"}, "['TLS'] cannot be used"),
        ({"TLS": {}}, "begins with amqp://, which is not encrypted"),
        ({"EXCHAGNE": "x"}, "['EXCHAGNE'] is not a setting. Did you mean 'EXCHANGE'?"),
    ],
)
def test_what_is_wrong_is_named_and_no_password_is_shown(options, expected):
    found = problems(**options)
    assert any(expected in problem for problem, _ in found), found
    assert all("s3cr3t" not in problem + hint for problem, hint in found)


def test_everything_that_is_wrong_is_found_at_once():
    assert len(problems(URL="http://h", HEARTBEAT=0, EXCHANGE=None, TYPO=1)) == 4


def test_a_publisher_with_wrong_options_cannot_be_made():
    with pytest.raises(ImproperlyConfiguredOutbox, match="EXCHANGE"):
        RabbitMQPublisher("default", {"URL": GOOD["URL"]})


def test_no_repr_shows_user_or_password():
    shown = repr(read()) + repr(parameters())
    assert "s3cr3t" not in shown
    assert "app" not in shown


def test_a_whole_publish_fits_into_half_of_the_default_lease():
    from django_outbox.conf import OutboxSettings

    publisher = RabbitMQPublisher("default", GOOD)
    assert publisher.longest_publish < OutboxSettings().lease / 2
