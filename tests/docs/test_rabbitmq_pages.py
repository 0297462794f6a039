"""The pages about RabbitMQ say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.publishers.rabbitmq import DEFAULT_CONFIRM_TIMEOUT, OPTIONS, RabbitMQPublisher
from django_outbox.wire.amqp import HEADERS_BYTES, header_problem
from django_outbox.wire.cloudevents import ATTRIBUTES, PREFIXES

ROOT = Path(__file__).parents[2]
HOWTO = (ROOT / "docs/howto/rabbitmq.md").read_text("utf-8")
WIRE = (ROOT / "docs/reference/wire-format.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", HOWTO, re.MULTILINE))


def test_every_option_has_its_row_and_no_other_is_shown():
    assert set(ROWS) == set(OPTIONS)


@pytest.mark.parametrize(
    "key", ["HEARTBEAT", "SOCKET_TIMEOUT", "STACK_TIMEOUT", "BLOCKED_CONNECTION_TIMEOUT"]
)
def test_the_defaults_are_the_real_ones(key):
    assert float(ROWS[key].strip("` ")) == getattr(ConnectionOptions(()), key.lower())


def test_the_longest_publish_is_the_one_that_is_promised():
    publisher = RabbitMQPublisher("default", {"URL": "amqp://mq", "EXCHANGE": "events"})
    assert publisher._options.longest_publish == 29
    assert "29 s" in HOWTO
    assert f"{DEFAULT_CONFIRM_TIMEOUT.total_seconds():.0f} s" in ROWS["CONFIRM_TIMEOUT"]


def test_the_urls_shown_can_be_read():
    shown = re.findall(r"amqps?://[\w.:@/%-]+[\w]", HOWTO)
    assert len(shown) >= 4
    for url in shown:
        assert read_connection_options({"URL": url.replace(":port", "")}, "X")[1] == [], url


def test_every_attribute_has_its_row_and_no_other_is_shown():
    table = WIRE.partition("## Attributes")[2].partition("## AMQP properties")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(ATTRIBUTES)
    assert set(re.findall(r"^ce-(\w+):", WIRE, re.MULTILINE)) == set(ATTRIBUTES)


def test_the_prefixes_that_are_read_are_shown_in_their_order():
    positions = [WIRE.partition("## Reading")[2].index(f"`{prefix}`") for prefix in PREFIXES]
    assert positions == sorted(positions)


def test_the_names_that_are_shown_as_taken_are_taken():
    section = WIRE.partition("Names that mean something already")[2].partition("## Celery")[0]
    taken = [name.replace("…", "queue") for name in re.findall(r"`([^`]+)`", section)]
    assert len(taken) == 15
    for name in taken:
        assert header_problem(f"{name}x" if name.startswith(("ce", "cl")) else name, "x")


def test_the_limit_of_all_headers_is_the_one_that_is_shown():
    assert f"{HEADERS_BYTES // 1024} KiB" in WIRE
