"""The options of the Kafka publisher, read and judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from django_outbox.brokers.options import OptionReader, Problem, WrongOption, seconds
from django_outbox.topics import matches, pattern_regex

DEFAULT_CONFIRM_TIMEOUT: Final = timedelta(seconds=20)
_KEYS: Final = frozenset({"SERVERS", "TOPICS", "CONFIG", "CONFIRM_TIMEOUT"})
_SERVERS_HINT: Final = "Write 'host:9092', or a list of them."
_TOPICS_HINT: Final = (
    "Name one Kafka topic for all ('domain.events'), or a dict, topic pattern -> Kafka topic, of which"
    ' the first match counts: {"invoice.*": "invoices", "#": "others"}.'
)
#: What the publisher sets itself, and what would be lost if somebody else did.
_OWN: Final = {
    "bootstrap.servers": "it is the option SERVERS",
    "metadata.broker.list": "it is the option SERVERS",
    "delivery.timeout.ms": "it is the option CONFIRM_TIMEOUT",
    "message.timeout.ms": "it is the option CONFIRM_TIMEOUT",
    "enable.idempotence": "without it a retry of the client reorders or doubles messages",
    "acks": "a message would count as published that not every in-sync replica has",
    "request.required.acks": "a message would count as published that not every in-sync replica has",
    "transactional.id": "the outbox's lease and the inbox do what Kafka's transactions would",
    "dr_cb": "the publisher reads the delivery reports",
    "on_delivery": "the publisher reads the delivery reports",
    "logger": "the client's log goes to the logger django_outbox.publishers.kafka",
}
#: https://kafka.apache.org: letters, digits, dot, underscore and hyphen, at most 249.
_KAFKA_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The options of one publisher, read."""

    servers: tuple[str, ...]
    topics: Mapping[str, str]
    """Topic pattern -> Kafka topic, in order."""
    config: Mapping[str, Any] = field(repr=False)
    """Properties of librdkafka: TLS, SASL, compression, …"""
    confirm_timeout: float
    """Seconds."""

    def topic_for(self, topic: str) -> str | None:
        """The Kafka topic for an event's topic."""
        for pattern, kafka_topic in self.topics.items():
            if matches(pattern, topic):
                return kafka_topic
        return None

    def client_config(self) -> dict[str, Any]:
        """What the client is made with, without the servers."""
        confirm_ms = int(self.confirm_timeout * 1000)
        return {
            # As Java clients do it, so that a key has one partition whoever writes it.
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            # Not to wait for a topic that nobody makes until the message's own time is up.
            "topic.metadata.propagation.max.ms": confirm_ms // 4,
            # Back after an outage well within the time of the next messages.
            "reconnect.backoff.max.ms": max(confirm_ms // 10, 100),
            # An outage is one line of the relay's, not one for each attempt to connect.
            "log_level": 2,
            **self.config,
            "enable.idempotence": True,
            "acks": "all",
            "delivery.timeout.ms": confirm_ms,
        }


def read_options(
    alias: str, options: Mapping[str, Any]
) -> tuple[KafkaOptions | None, list[Problem]]:
    """The options in force, or None and all that is wrong with them as (problem, hint)."""
    reader = OptionReader(options, f"OUTBOX['PUBLISHERS'][{alias!r}]")
    nothing: Mapping[str, Any] = {}
    read = KafkaOptions(
        servers=reader.read("SERVERS", _servers, (), required=_SERVERS_HINT),
        topics=reader.read("TOPICS", _topics, nothing, required=_TOPICS_HINT),
        config=reader.read("CONFIG", _config, nothing),
        confirm_timeout=reader.read(
            "CONFIRM_TIMEOUT", seconds, DEFAULT_CONFIRM_TIMEOUT.total_seconds()
        ),
    )
    reader.find_unknown(_KEYS)
    return (None if reader.problems else read), reader.problems


def _servers(value: Any) -> tuple[str, ...]:
    servers = [value] if isinstance(value, str) else value
    if not isinstance(servers, Sequence) or isinstance(servers, bytes) or not servers:
        raise WrongOption("must be a server or a list of servers.", _SERVERS_HINT)
    for server in servers:
        if not isinstance(server, str) or not server or "/" in server or "," in server:
            raise WrongOption("must name servers as host:port, without a scheme.", _SERVERS_HINT)
    return tuple(servers)


def _topics(value: Any) -> Mapping[str, str]:
    topics = {"#": value} if isinstance(value, str) else value
    if not isinstance(topics, Mapping) or not topics:
        raise WrongOption("must be a Kafka topic, or a dict of them.", _TOPICS_HINT)
    for pattern, kafka_topic in topics.items():
        try:
            pattern_regex(pattern if isinstance(pattern, str) else "")
        except ValueError as error:
            raise WrongOption(f"is wrong: {error}", _TOPICS_HINT) from None
        if not isinstance(kafka_topic, str) or not _KAFKA_TOPIC.match(kafka_topic):
            raise WrongOption(
                f"has no usable Kafka topic for {pattern!r}.",
                "Letters, digits, '.', '_' and '-', at most 249 of them.",
            )
    return dict(topics)


def _config(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise WrongOption('must be a dict of properties: {"security.protocol": "SASL_SSL", …}.')
    for name in value:
        if name in _OWN:
            raise WrongOption(f"must not hold {name!r}: {_OWN[name]}.")
    return dict(value)
