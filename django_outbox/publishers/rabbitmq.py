"""Publish to RabbitMQ: persistent, mandatory, with pipelined confirms.

A whole round goes out, then its confirms are awaited. One connection serves every thread of the
process; it is made at the first use, again when it has ended, and anew after a fork.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

from django_outbox.brokers.options import OptionReader, Problem, WrongOption, flag, seconds, text
from django_outbox.brokers.rabbitmq.channel import ConfirmChannel
from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.culprits import find_culprits, judge
from django_outbox.brokers.rabbitmq.options import CONNECTION_KEYS, read_connection_options
from django_outbox.brokers.rabbitmq.questions import NO_ANSWER, Question
from django_outbox.brokers.rabbitmq.rounds import (
    EncodedProperties,
    End,
    Ending,
    Outgoing,
    Round,
)
from django_outbox.exceptions import ImproperlyConfiguredOutbox, UnsendableMessage
from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.publishers.unforeseen import unforeseen
from django_outbox.wire.amqp import SHORT_STRING_BYTES
from django_outbox.wire.amqp_encoding import encoded_properties

DEFAULT_CONFIRM_TIMEOUT: Final = timedelta(seconds=20)
#: Every option of this publisher.
OPTIONS: Final = CONNECTION_KEYS | {"EXCHANGE", "MANDATORY", "CONFIRM_TIMEOUT"}
#: What the I/O thread may need to say that time is up.
_GRACE: Final = 1.0
#: For the answer to a probe, once there is a connection.
_PROBE_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class RabbitMQOptions:
    """The options of one publisher, read."""

    connection: ConnectionOptions
    exchange: str
    mandatory: bool
    confirm_timeout: float
    """Seconds."""

    @property
    def longest_publish(self) -> float:
        """Seconds after which ``publish`` has returned, whatever the broker does."""
        return self.connection.connect_timeout + self.confirm_timeout + _GRACE


class RabbitMQPublisher:
    """The publisher for RabbitMQ. Options: docs/howto/rabbitmq.md."""

    supports_concurrent_publish: ClassVar[bool] = True

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        """Raises ``ImproperlyConfiguredOutbox`` naming every option that is wrong."""
        read, problems = _read_options(alias, options)
        if read is None:
            raise ImproperlyConfiguredOutbox("\n".join(problem for problem, _ in problems))
        self._begin(alias, read)

    def _begin(self, alias: str, options: RabbitMQOptions) -> None:
        self._alias = alias
        self._options = options
        self._lock = threading.Lock()
        self._channel: ConfirmChannel | None = None
        _made.add(self)

    @property
    def longest_publish(self) -> timedelta:
        """``STACK_TIMEOUT`` + ``CONFIRM_TIMEOUT`` and a second: 29 s unless configured otherwise."""
        return timedelta(seconds=self._options.longest_publish)

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """Send one round and wait for the broker's word on each message; raises nothing."""
        try:
            outgoing, receipts = self._encode(messages)
            return receipts + (self._send(outgoing) if outgoing else [])
        except Exception as error:
            return unforeseen(self._alias, error, messages)

    def probe(self) -> str:
        """Ask the broker whether it would take messages. Empty: yes; else the reason.

        A missing exchange is not the broker's fault: messages to it are rejected one by one.
        """
        question = Question()
        try:
            channel = self._open_channel()
        except (OSError, ssl.SSLError, RuntimeError) as error:
            return _not_started(error)
        channel.ask(question)
        answer = question.wait(self._options.connection.stack_timeout + _PROBE_TIMEOUT)
        if answer == NO_ANSWER:
            self._forget(channel)
        return answer

    def close(self) -> None:
        """Let go of the connection. The publisher can be used again afterwards."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with these options, as (problem, hint)."""
        return _read_options(alias, options)[1]

    def _encode(self, messages: Sequence[Message]) -> tuple[list[Outgoing], list[Receipt]]:
        """What to send, and receipts for what cannot be sent; publishers/celery has a form of its own."""
        return _encode(messages)

    def _send(self, outgoing: Sequence[Outgoing]) -> list[Receipt]:
        deadline = time.monotonic() + self._options.longest_publish - _GRACE
        round_ = Round(outgoing, self._options.confirm_timeout)
        try:
            channel = self._open_channel()
        except (OSError, ssl.SSLError, RuntimeError) as error:
            round_.finish(Ending(End.LOST, _not_started(error)))
        else:
            self._await(channel, round_, deadline)
        receipts, suspects = judge(round_, round_.wait(0))
        if suspects:
            receipts += self._find_culprits(suspects, deadline)
        return receipts

    def _find_culprits(self, suspects: Sequence[Outgoing], deadline: float) -> list[Receipt]:
        channel: ConfirmChannel | None = None

        def attempt(chunk: Sequence[Outgoing]) -> tuple[Round, Ending]:
            nonlocal channel
            left = max(deadline - time.monotonic(), 0.1)
            round_ = Round(chunk, min(self._options.confirm_timeout, left))
            if channel is None or channel.is_over:
                channel = self._make_channel(f"{self._alias} (culprit)")
            return round_, self._await(channel, round_, deadline)

        try:
            return find_culprits(suspects, attempt, lambda: time.monotonic() < deadline)
        finally:
            if channel is not None:
                channel.close(wait=False)

    def _await(self, channel: ConfirmChannel, round_: Round, deadline: float) -> Ending:
        channel.send(round_)
        ending = round_.wait(max(deadline - time.monotonic(), 0) + _GRACE)
        if ending.end is End.LOST and not channel.is_over:
            self._forget(channel)
        return ending

    def _open_channel(self) -> ConfirmChannel:
        """The channel in use, or a new one where there is none."""
        with self._lock:
            if self._channel is None or self._channel.is_over:
                self._channel = self._make_channel(self._alias)
            return self._channel

    def _make_channel(self, name: str) -> ConfirmChannel:
        return ConfirmChannel(
            self._options.connection,
            exchange=self._options.exchange,
            mandatory=self._options.mandatory,
            name=f"django_outbox {name}",
        )

    def _forget(self, channel: ConfirmChannel) -> None:
        with self._lock:
            if self._channel is channel:
                self._channel = None
        channel.close(wait=False)

    def _start_over_in_child(self) -> None:
        # The connection is the parent's: its thread does not exist here, and its socket must not be
        # shut down from here. Whoever held the lock is gone as well.
        self._lock = threading.Lock()
        self._channel = None


_made: weakref.WeakSet[RabbitMQPublisher] = weakref.WeakSet()


def _start_over_in_child() -> None:
    for publisher in list(_made):
        publisher._start_over_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over_in_child)


def _encode(messages: Sequence[Message]) -> tuple[list[Outgoing], list[Receipt]]:
    outgoing: list[Outgoing] = []
    refused: list[Receipt] = []
    for message in messages:
        try:
            properties = EncodedProperties(encoded_properties(message))
            body = message.body.encode()
        except UnsendableMessage as error:
            refused.append(Receipt(message.id, Outcome.REJECTED, str(error)))
        except UnicodeEncodeError:
            reason = "its body holds a lone surrogate, which is no Unicode text"
            refused.append(Receipt(message.id, Outcome.REJECTED, reason))
        except Exception as error:  # whatever is wrong with a message concerns only that message
            reason = f"it cannot be encoded ({type(error).__name__})"
            refused.append(Receipt(message.id, Outcome.REJECTED, reason))
        else:
            outgoing.append(Outgoing(message.id, message.topic, properties, body))
    return outgoing, refused


def _not_started(error: Exception) -> str:
    if isinstance(error, RuntimeError):
        return "no thread could be started"
    return f"the TLS files cannot be used: {type(error).__name__}"


def _read_options(
    alias: str, options: Mapping[str, Any]
) -> tuple[RabbitMQOptions | None, list[Problem]]:
    where = f"OUTBOX['PUBLISHERS'][{alias!r}]"
    connection, problems = read_connection_options(options, where)
    reader = OptionReader(options, where)
    reader.find_unknown(OPTIONS)
    exchange = reader.read("EXCHANGE", _exchange, "", required=_EXCHANGE_HINT)
    mandatory = reader.read("MANDATORY", flag, True)
    confirm_timeout = reader.read(
        "CONFIRM_TIMEOUT", seconds, DEFAULT_CONFIRM_TIMEOUT.total_seconds()
    )
    problems = [*problems, *reader.problems]
    if connection is None or problems:
        return None, problems
    return RabbitMQOptions(connection, exchange, mandatory, confirm_timeout), []


_EXCHANGE_HINT: Final = "The name of a topic exchange, for example 'domain.events'."


def _exchange(value: Any) -> str:
    name = text(value)
    if len(name.encode(errors="replace")) > SHORT_STRING_BYTES:
        raise WrongOption(f"is longer than {SHORT_STRING_BYTES} bytes.")
    return name
