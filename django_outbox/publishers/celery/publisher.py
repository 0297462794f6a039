"""CeleryPublisher: each message becomes a call of a task, by the task's name alone.

No task is imported, so producer and workers need not share code. On RabbitMQ the calls go out with
pipelined confirms, mandatory, as events do; on another broker of a Celery app through kombu.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from celery import Celery

from django_outbox.brokers.options import Problem
from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.publishers.celery.amqp import AmqpTaskSender
from django_outbox.publishers.celery.kombu import KombuTaskSender
from django_outbox.publishers.celery.options import read_options
from django_outbox.publishers.celery.routing import (
    Address,
    address_of,
    connection_options,
    load_app,
    speaks_amqp,
)
from django_outbox.publishers.rabbitmq import RabbitMQOptions
from django_outbox.publishers.unforeseen import unforeseen


class CeleryPublisher:
    """The publisher for Celery workers. Options: docs/howto/celery.md."""

    supports_concurrent_publish: ClassVar[bool] = True

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        """Raises ``ImproperlyConfiguredOutbox`` naming every option that is wrong."""
        read, problems = read_options(alias, options)
        if problems:
            raise ImproperlyConfiguredOutbox("\n".join(problem for problem, _ in problems))
        self._alias = alias
        self._options = read
        self._lock = threading.RLock()
        self._by_exchange: dict[str, AmqpTaskSender] = {}

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """Send one round and wait for the broker's word on each message; raises nothing."""
        try:
            return self._publish(messages)
        except Exception as error:
            return unforeseen(self._alias, error, messages)

    def probe(self) -> str:
        """Ask the broker whether it would take messages. Empty: yes; else the reason."""
        if self._kombu is not None:
            return self._kombu.probe()
        return self._sender_for(self._options.exchange).probe()

    def close(self) -> None:
        """Let go of the connections. The publisher can be used again afterwards."""
        with self._lock:
            senders, self._by_exchange = list(self._by_exchange.values()), {}
            kombu = self.__dict__.get("_kombu")
        for sender in senders:
            sender.close()
        if kombu is not None:
            kombu.close()

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with these options, as (problem, hint)."""
        read, problems = read_options(alias, options)
        if read.app:
            try:
                load_app(read.app)
            except Exception as error:  # whatever the import of somebody's module raises
                where = f"OUTBOX['PUBLISHERS'][{alias!r}]['APP']"
                problems.append(
                    (
                        f"{where} cannot be loaded: {type(error).__name__}.",
                        "Write the path that `celery -A` takes: 'project.celery:app'.",
                    )
                )
        return problems

    def _publish(self, messages: Sequence[Message]) -> list[Receipt]:
        receipts: list[Receipt] = []
        calls: list[tuple[Message, Address]] = []
        for message in messages:
            address = self._address_of(message)
            if isinstance(address, Address):
                calls.append((message, address))
            else:
                receipts.append(Receipt(message.id, Outcome.REJECTED, address))
        if self._kombu is not None:
            return receipts + self._kombu.publish(calls)
        by_exchange: defaultdict[str, list[Message]] = defaultdict(list)
        for message, address in calls:
            by_exchange[address.exchange].append(message)
        for exchange, group in by_exchange.items():
            receipts += self._sender_for(exchange).publish(group)
        return receipts

    def _address_of(self, message: Message) -> Address | str:
        """Where the message goes, or why nowhere."""
        task = self._options.task_for(message.topic)
        if task is None:
            return "no pattern in TASKS covers its topic"
        try:
            return address_of(self._options, self._app, task, message.topic)
        except Exception as error:  # the app's routers are the user's code
            return f"the app's routing of {task!r} raised {type(error).__name__}"

    def _known_address_of(self, message: Message) -> Address:
        address = self._address_of(message)
        assert isinstance(address, Address)  # noqa: S101 - only messages that have one get so far
        return address

    def _sender_for(self, exchange: str) -> AmqpTaskSender:
        with self._lock:
            if exchange not in self._by_exchange:
                options = replace(self._rabbitmq_options, exchange=exchange)
                self._by_exchange[exchange] = AmqpTaskSender(
                    self._alias, options, self._known_address_of
                )
            return self._by_exchange[exchange]

    @cached_property
    def _app(self) -> Celery | None:
        return load_app(self._options.app) if self._options.app else None

    @cached_property
    def _kombu(self) -> KombuTaskSender | None:
        if self._app is None or speaks_amqp(self._app):
            return None
        return KombuTaskSender(self._app, self._options.confirm_timeout)

    @cached_property
    def _rabbitmq_options(self) -> RabbitMQOptions:
        raw = self._options.connection if self._app is None else connection_options(self._app)
        connection, problems = read_connection_options(
            raw, f"OUTBOX['PUBLISHERS'][{self._alias!r}]"
        )
        if connection is None:
            raise ImproperlyConfiguredOutbox("\n".join(problem for problem, _ in problems))
        return RabbitMQOptions(
            connection, "", self._options.mandatory, self._options.confirm_timeout
        )
