"""The Celery publisher on real brokers: RabbitMQ by way of pika, Redis by way of kombu."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery
from kombu import Exchange, Queue

from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.publishers.base import Outcome
from django_outbox.publishers.celery import CeleryPublisher
from django_outbox.wire.celery import ARGS_REPR, from_celery
from tests.support import services
from tests.support.publishing import by_message, make_message, make_messages, outcomes
from tests.support.rabbitmq import Broker

TASKS = {"invoice.*": "ledger.book", "order.#": "orders.take"}
Publish = Callable[..., CeleryPublisher]


@pytest.fixture
def publisher() -> Iterator[Publish]:
    """Makes publishers; their options are given."""
    made: list[CeleryPublisher] = []

    def of(**options: Any) -> CeleryPublisher:
        made.append(CeleryPublisher("tasks", {"TASKS": TASKS, **options}))
        return made[-1]

    yield of
    for each in made:
        each.close()


@pytest.fixture
def app_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a Celery app on a broker; the path that APP names it by."""

    def make(url: str, **conf: Any) -> str:
        app = Celery("project", broker=url, set_as_current=False)
        app.conf.update(conf)
        monkeypatch.setattr(sys.modules[__name__], "app", app, raising=False)
        return f"{__name__}:app"

    return make


@pytest.fixture
def redis_url() -> Iterator[str]:
    """A database of the Redis server that no worker of another test reads."""
    services.require(services.REDIS_URL, "Redis")
    url = services.REDIS_URL.rpartition("/")[0] + "/14"
    yield url
    redis.Redis.from_url(url).flushdb()


def task_queue(rabbitmq: Broker) -> str:
    name = f"tasks.{uuid4().hex[:10]}"
    rabbitmq.channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    return name


def test_a_round_of_calls_is_confirmed_and_arrives_in_order(
    rabbitmq: Broker, publisher: Publish
) -> None:
    queue = task_queue(rabbitmq)
    sent = make_messages(1_000)
    receipts = publisher(URL=rabbitmq.url, QUEUE=queue).publish(sent)
    assert outcomes(receipts) == {Outcome.CONFIRMED: 1_000}
    assert rabbitmq.ids(queue) == [message.id for message in sent]


def test_a_call_has_the_message_id_as_task_id_and_shows_nothing_of_the_payload(
    rabbitmq: Broker, publisher: Publish
) -> None:
    queue = task_queue(rabbitmq)
    sent = make_message(body='{"name":"Ada"}', correlation_id="chain-1", causation_id="cause-1")
    publisher(URL=rabbitmq.url, QUEUE=queue).publish([sent])
    ((properties, body),) = rabbitmq.take(queue)
    headers = properties.headers
    assert (headers["task"], headers["id"]) == ("ledger.book", str(sent.id))
    assert headers["argsrepr"] == ARGS_REPR
    assert "Ada" not in str(properties)
    assert properties.delivery_mode == 2
    (argument,), keywords, _ = json.loads(body)
    assert keywords == {}
    assert from_celery(argument, headers=headers, task_id="", task="ledger.book") == sent


def test_the_first_pattern_that_matches_names_the_task_and_none_rejects_the_message(
    rabbitmq: Broker, publisher: Publish
) -> None:
    queue = task_queue(rabbitmq)
    known, deeper, unknown = (
        make_message(topic=topic) for topic in ("invoice.paid", "order.line.added", "stock.low")
    )
    receipts = by_message(
        publisher(URL=rabbitmq.url, QUEUE=queue).publish([unknown, known, deeper])
    )
    assert receipts[unknown.id].outcome is Outcome.REJECTED
    assert "no pattern in TASKS" in receipts[unknown.id].reason
    tasks = [properties.headers["task"] for properties, _ in rabbitmq.take(queue)]
    assert tasks == ["ledger.book", "orders.take"]


def test_a_call_that_no_queue_takes_is_rejected(rabbitmq: Broker, publisher: Publish) -> None:
    [receipt] = publisher(URL=rabbitmq.url, QUEUE="nobody.made.it").publish([make_message()])
    assert receipt.outcome is Outcome.REJECTED
    exchange = rabbitmq.exchange()
    [receipt] = publisher(URL=rabbitmq.url, EXCHANGE=exchange).publish([make_message()])
    assert receipt.outcome is Outcome.REJECTED


def test_through_an_exchange_the_routing_key_is_the_topic_unless_another_is_given(
    rabbitmq: Broker, publisher: Publish
) -> None:
    exchange = rabbitmq.exchange()
    by_topic = rabbitmq.queue(exchange, "invoice.issued")
    by_key = rabbitmq.queue(exchange, "tasks")
    sent = [make_message(), make_message()]
    publisher(URL=rabbitmq.url, EXCHANGE=exchange).publish(sent[:1])
    publisher(URL=rabbitmq.url, EXCHANGE=exchange, ROUTING_KEY="tasks").publish(sent[1:])
    assert rabbitmq.ids(by_topic) == [sent[0].id]
    assert rabbitmq.ids(by_key) == [sent[1].id]


def test_an_app_says_where_the_broker_is_and_where_its_tasks_go(
    rabbitmq: Broker, publisher: Publish, app_on: Callable[..., str]
) -> None:
    direct, exchange = task_queue(rabbitmq), rabbitmq.exchange()
    bound = rabbitmq.queue(exchange, "orders.#")
    path = app_on(
        rabbitmq.url,
        task_queues=[
            Queue(direct, Exchange(direct), routing_key=direct),
            Queue(bound, Exchange(exchange, "topic"), routing_key="orders.#"),
        ],
        task_default_queue=direct,
        task_routes={"orders.*": {"exchange": exchange, "routing_key": "orders.urgent"}},
    )
    sent = [make_message(), make_message(topic="order.placed")]
    made = publisher(APP=path)
    assert made.probe() == ""
    assert outcomes(made.publish(sent)) == {Outcome.CONFIRMED: 2}
    assert rabbitmq.ids(direct) == [sent[0].id]
    assert rabbitmq.ids(bound) == [sent[1].id]


def test_a_broker_that_is_away_is_an_outage(publisher: Publish, app_on: Callable[..., str]) -> None:
    for options in (
        {"URL": "amqp://somebody:secret@127.0.0.1:1/", "QUEUE": "tasks"},
        {"APP": app_on("redis://:secret@127.0.0.1:1/0"), "QUEUE": "tasks"},
    ):
        made = publisher(**options)
        receipts = made.publish(make_messages(3))
        assert outcomes(receipts) == {Outcome.BROKER_DOWN: 3}
        assert made.probe()
        assert not any("secret" in receipt.reason for receipt in receipts)


def test_on_redis_the_app_delivers(
    redis_url: str, publisher: Publish, app_on: Callable[..., str]
) -> None:
    sent = make_messages(3)
    made = publisher(APP=app_on(redis_url), QUEUE="ledger")
    assert made.probe() == ""
    assert outcomes(made.publish(sent)) == {Outcome.CONFIRMED: 3}
    raw = redis.Redis.from_url(redis_url).lrange("ledger", 0, -1)
    assert [json.loads(each)["headers"]["id"] for each in reversed(raw)] == [
        str(message.id) for message in sent
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "TASKS"),
        ({"TASKS": {"invoice.*": ""}, "URL": "amqp://", "QUEUE": "q"}, "a non-empty string"),
        ({"TASKS": {"invoice..x": "t"}, "URL": "amqp://", "QUEUE": "q"}, "TASKS"),
        ({"TASKS": TASKS, "URL": "amqp://127.0.0.1/"}, "does not say where tasks go"),
        ({"TASKS": TASKS, "QUEUE": "q"}, "URL"),
        ({"TASKS": TASKS, "URL": "amqp://127.0.0.1/", "QUEUE": "q", "EXCHANGE": "e"}, "both"),
        ({"TASKS": TASKS, "URL": "amqp://127.0.0.1/", "APP": "a:b", "QUEUE": "q"}, "both 'APP'"),
        ({"TASKS": TASKS, "URL": "amqp://127.0.0.1/", "QUEU": "q"}, "Did you mean 'QUEUE'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ImproperlyConfiguredOutbox, match=problem):
        CeleryPublisher("tasks", options)
    assert CeleryPublisher.check("tasks", options)


def test_an_app_that_cannot_be_loaded_is_a_problem_for_the_check() -> None:
    [(problem, hint)] = CeleryPublisher.check("tasks", {"TASKS": TASKS, "APP": "no.such:app"})
    assert problem == "OUTBOX['PUBLISHERS']['tasks']['APP'] cannot be loaded: ModuleNotFoundError."
    assert "celery -A" in hint
