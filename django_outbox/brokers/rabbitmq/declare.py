"""Make a topology exist, and say what was there, what is new, and what contradicts it.

Nothing that exists is changed or deleted: RabbitMQ cannot change a queue's arguments, and a queue
holds messages. A contradiction is reported with the broker's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, assert_never

import pika
from pika import exceptions

from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.errors import connection_trouble, reply
from django_outbox.brokers.rabbitmq.topology import (
    CONSISTENT_HASH,
    Binding,
    Exchange,
    Item,
    Queue,
    Topology,
)
from django_outbox.exceptions import OutboxError

_NOT_FOUND = 404
_UNKNOWN_TYPE = 503
_PLUGIN = "rabbitmq_consistent_hash_exchange"


class State(Enum):
    """What was found out about one item, or done about it."""

    EXISTS = auto()
    """It is there as asked for."""
    CREATED = auto()
    """It was not there and is now."""
    MISSING = auto()
    """It is not there; only with ``dry_run``, which creates nothing."""
    BOUND = auto()
    """The binding is there now; AMQP does not tell whether it was before."""
    UNKNOWN = auto()
    """A binding, with ``dry_run``: AMQP has no way to ask for one."""
    CONFLICT = auto()
    """It is there with other properties. It was left as it is."""
    REFUSED = auto()
    """The broker does not let it be made."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One item and what became of it."""

    item: Item
    state: State
    reason: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether somebody has to act."""
        return self.state in {State.CONFLICT, State.REFUSED}


class BrokerUnavailable(OutboxError):
    """No connection to the broker could be made, or it was lost. What was declared before stays."""


def declare(
    topology: Topology, options: ConnectionOptions, *, dry_run: bool = False
) -> Iterator[Finding]:
    """Declare every item in turn, each on a channel of its own, and yield what came of it.

    Idempotent. Raises ``BrokerUnavailable``.
    """
    session = _Session(options)
    try:
        for item in topology.items():
            match item:
                case Exchange():
                    yield session.exchange(item, dry_run=dry_run)
                case Queue():
                    yield session.queue(item, dry_run=dry_run)
                case Binding():
                    yield session.binding(item, dry_run=dry_run)
                case _ as never:
                    assert_never(never)
    finally:
        session.close()


class _Session:
    """A connection that is made again when an item has cost it."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._connection: Any = None

    def exchange(self, item: Exchange, *, dry_run: bool) -> Finding:
        def ask(channel: Any) -> None:
            channel.exchange_declare(item.name, item.kind, passive=True)

        def make(channel: Any) -> None:
            arguments = dict(item.arguments)
            channel.exchange_declare(item.name, item.kind, durable=True, arguments=arguments)

        return self._declare(item, ask, make, dry_run=dry_run)

    def queue(self, item: Queue, *, dry_run: bool) -> Finding:
        def ask(channel: Any) -> None:
            channel.queue_declare(item.name, passive=True)

        def make(channel: Any) -> None:
            channel.queue_declare(item.name, durable=True, arguments=dict(item.arguments))

        return self._declare(item, ask, make, dry_run=dry_run)

    def binding(self, item: Binding, *, dry_run: bool) -> Finding:
        if dry_run:
            return Finding(item, State.UNKNOWN)

        def bind(channel: Any) -> None:
            if item.to_exchange:
                channel.exchange_bind(item.destination, item.source, item.key)
            else:
                channel.queue_bind(item.destination, item.source, item.key)

        refusal = self._try(bind)
        return (
            Finding(item, State.REFUSED, refusal.reason) if refusal else Finding(item, State.BOUND)
        )

    def close(self) -> None:
        """Say goodbye, if there is a connection."""
        if self._connection is not None:
            with suppress(exceptions.AMQPError):
                self._connection.close()

    def _declare(
        self,
        item: Item,
        ask: Callable[[Any], None],
        make: Callable[[Any], None],
        *,
        dry_run: bool,
    ) -> Finding:
        absence = self._try(ask)
        exists = absence is None
        if absence is not None and absence.code != _NOT_FOUND:
            return Finding(item, State.REFUSED, absence.reason)
        if dry_run and not exists:
            return Finding(item, State.MISSING)
        # What exists is declared as well: that changes nothing and is how the broker compares.
        refusal = self._try(make)
        if refusal is None:
            return Finding(item, State.EXISTS if exists else State.CREATED)
        if refusal.code == _UNKNOWN_TYPE and isinstance(item, Exchange):
            return Finding(item, State.REFUSED, _unknown_type(item))
        return Finding(item, State.CONFLICT if exists else State.REFUSED, refusal.reason)

    def _try(self, act: Callable[[Any], None]) -> _Refusal | None:
        """Do it on a channel of its own, because a refusal costs the channel or the connection."""
        try:
            channel = self._connected().channel()
            act(channel)
            channel.close()
        except exceptions.ChannelClosedByBroker as error:
            return _Refusal(error.reply_code, reply(error))
        except exceptions.ConnectionClosedByBroker as error:
            self._connection = None
            return _Refusal(error.reply_code, reply(error))
        except exceptions.AMQPError as error:
            self._connection = None
            raise BrokerUnavailable(connection_trouble(error)) from None
        return None

    def _connected(self) -> Any:
        if self._connection is None:
            try:
                parameters = self._options.parameters("outbox_topology")
                self._connection = pika.BlockingConnection(parameters)
            except (exceptions.AMQPError, OSError) as error:
                raise BrokerUnavailable(connection_trouble(error)) from None
        return self._connection


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: int
    reason: str


def _unknown_type(item: Exchange) -> str:
    if item.kind == CONSISTENT_HASH:
        return f"partitions need a plugin on the broker: rabbitmq-plugins enable {_PLUGIN}"
    return f"the broker knows no exchanges of type {item.kind!r}"
