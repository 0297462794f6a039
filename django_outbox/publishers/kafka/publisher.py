"""Publish to Kafka: an idempotent producer, the aggregate id as the key, delivery reports as receipts."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from django_outbox.brokers.options import Problem
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.publishers.kafka.options import KafkaOptions, read_options
from django_outbox.publishers.kafka.verdicts import Meaning, ends_producer, meaning_of
from django_outbox.publishers.unforeseen import unforeseen
from django_outbox.wire.kafka import to_kafka

if TYPE_CHECKING:
    from django_outbox.publishers.kafka.client import Client, Sending

#: Seconds for the answer to a probe, at most.
_PROBE_TIMEOUT: Final = 5.0
_NO_TOPIC: Final = "no pattern of the publisher's TOPICS matches the topic"
_NO_TIME: Final = (
    "it was in a batch too large for the broker, and no time was left to send it alone"
)
_MISSING: Final = "confluent-kafka is not installed"
_INSTALL: Final = "pip install 'django-transactional-outbox[kafka]'"


class KafkaPublisher:
    """The publisher for Kafka. Options: docs/reference/publishers.md."""

    supports_concurrent_publish: ClassVar[bool] = True

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        """Raises ``ImproperlyConfiguredOutbox`` naming every option that is wrong."""
        read, problems = read_options(alias, options)
        if read is None:
            raise ImproperlyConfiguredOutbox("\n".join(problem for problem, _ in problems))
        self._alias = alias
        self._options: KafkaOptions = read
        self._lock = threading.Lock()
        self._client: Client | None = None
        _made.add(self)

    @property
    def longest_publish(self) -> timedelta:
        """``CONFIRM_TIMEOUT`` and 6 s: 26 s unless configured otherwise."""
        return timedelta(seconds=self._options.confirm_timeout + _PROBE_TIMEOUT + 1)

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """Send one round and wait for the delivery report of each message; raises nothing."""
        try:
            client = self._open_client()
        except Exception as error:  # the library is missing, or refuses its configuration
            reason = f"the client cannot be made: {type(error).__name__}"
            return [Receipt(message.id, Outcome.BROKER_DOWN, reason) for message in messages]
        try:
            sendings, receipts = self._encode(messages)
            return receipts + (self._send(client, sendings) if sendings else [])
        except Exception as error:
            return unforeseen(self._alias, error, messages)

    def probe(self) -> str:
        """Ask the brokers whether they answer. Empty: yes; else the reason."""
        try:
            client = self._open_client()
        except Exception as error:
            return f"the client cannot be made: {type(error).__name__}"
        answer = client.probe(self._probe_timeout)
        if client.is_broken:
            self._forget(client)
        return answer and _in_words(answer)

    def close(self) -> None:
        """Let go of connections. The publisher can be used again afterwards."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with these options, as (problem, hint)."""
        where = f"OUTBOX['PUBLISHERS'][{alias!r}]"
        read, problems = read_options(alias, options)
        try:
            from django_outbox.publishers.kafka.client import config_problem
        except ImportError:
            return [*problems, (f"{where} publishes to Kafka, but {_MISSING}.", _INSTALL)]
        refused = config_problem(read) if read is not None else None
        if refused is not None:
            hint = "The properties are librdkafka's; values are text, numbers and booleans."
            problems.append((f"{where}['CONFIG'] is refused by the client: {refused}.", hint))
        return problems

    @property
    def _probe_timeout(self) -> float:
        return min(_PROBE_TIMEOUT, self._options.confirm_timeout)

    def _encode(self, messages: Sequence[Message]) -> tuple[list[Sending], list[Receipt]]:
        from django_outbox.publishers.kafka.client import Sending

        sendings: list[Sending] = []
        refused: list[Receipt] = []
        for message in messages:
            topic = self._options.topic_for(message.topic)
            if topic is None:
                refused.append(Receipt(message.id, Outcome.REJECTED, _NO_TOPIC))
                continue
            try:
                record = to_kafka(message)
            except UnicodeEncodeError:
                reason = "it holds a lone surrogate, which is no Unicode text"
                refused.append(Receipt(message.id, Outcome.REJECTED, reason))
            else:
                sendings.append(Sending(message.id, topic, record))
        return sendings, refused

    def _send(self, client: Client, sendings: Sequence[Sending]) -> list[Receipt]:
        began = time.monotonic()
        deadline = began + self._options.confirm_timeout
        reports = client.send(sendings, deadline)
        not_sent: set[UUID] = set()
        if len(sendings) > 1:
            # Brokers judge the batch that the client made of several: alone, each shows what it is.
            for sending in sendings:
                if meaning_of(reports[sending.message_id]) is not Meaning.TOO_LARGE:
                    continue
                if time.monotonic() > deadline:
                    not_sent.add(sending.message_id)
                else:
                    reports.update(client.send([sending], deadline))
        is_down = None
        if any(meaning_of(name) is Meaning.UNKNOWN for name in reports.values()):
            is_down = client.was_down_since(began) or client.probe(self._probe_timeout) != ""
        if client.is_broken or any(map(ends_producer, reports.values())):
            self._forget(client)
        return [
            Receipt(each.message_id, Outcome.NOT_SENT, _NO_TIME)
            if each.message_id in not_sent
            else _receipt(each, reports[each.message_id], is_down)
            for each in sendings
        ]

    def _open_client(self) -> Client:
        from django_outbox.publishers.kafka.client import Client

        with self._lock:
            if self._client is None:
                self._client = Client(self._options)
            return self._client

    def _forget(self, client: Client) -> None:
        """The next round makes a new one."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _start_over_in_child(self) -> None:
        # The client's threads are the parent's, and whoever held the lock is gone. To end the client
        # would be to wait for those threads.
        self._lock = threading.Lock()
        _left_behind.append(self._client)
        self._client = None


def _receipt(sending: Sending, name: str, is_down: bool | None) -> Receipt:
    if not name:
        return Receipt(sending.message_id, Outcome.CONFIRMED)
    meaning = meaning_of(name)
    if meaning is Meaning.UNKNOWN:
        meaning = Meaning.DOWN if is_down else Meaning.FAILED
    return Receipt(sending.message_id, _OUTCOMES[meaning], _in_words(name))


_OUTCOMES: Final = {
    Meaning.REJECTED: Outcome.REJECTED,
    Meaning.TOO_LARGE: Outcome.REJECTED,
    Meaning.FAILED: Outcome.FAILED,
    Meaning.DOWN: Outcome.BROKER_DOWN,
}


def _in_words(name: str) -> str:
    where = "client" if name.startswith("_") else "broker"
    return f"the {where} says {name.removeprefix('_')}"


_made: weakref.WeakSet[KafkaPublisher] = weakref.WeakSet()
_left_behind: list[Client | None] = []


def _start_over_in_child() -> None:
    for publisher in list(_made):
        publisher._start_over_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over_in_child)
