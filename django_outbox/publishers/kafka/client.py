"""A producer of confluent-kafka, and rounds of records that wait for their delivery reports."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, Producer

from django_outbox.publishers.kafka.options import KafkaOptions
from django_outbox.wire.kafka import KafkaRecord

logger = logging.getLogger("django_outbox.publishers.kafka")

CONFIRMED: Final = ""
#: Seconds between two looks at the delivery reports.
_GLANCE: Final = 0.1
#: Seconds that the client may take to report a message whose time is up.
GRACE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sending:
    """One record on its way to one Kafka topic."""

    message_id: UUID
    topic: str
    record: KafkaRecord = field(repr=False)


class Client:
    """One producer. Used by any number of threads at once; it sends in threads of its own."""

    def __init__(self, options: KafkaOptions) -> None:
        """Raises ``KafkaException`` where the client does not take its configuration."""
        self._producer = Producer(
            {
                **options.client_config(),
                "bootstrap.servers": ",".join(options.servers),
                "error_cb": self._note_error,
            },
            logger=logger,
        )
        self.is_broken = False
        """Whether a fatal error has ended this producer."""
        self._down_at = -math.inf

    def send(self, sendings: Sequence[Sending], deadline: float) -> dict[UUID, str]:
        """Send one round and wait for its reports: by message id, the error's name or ``CONFIRMED``.

        Returns by the deadline (monotonic seconds) and ``GRACE``. A report that has not come by then
        is a time-out, whatever becomes of the message.
        """
        reports = Reports()
        for sending in sendings:
            reports.put(sending.message_id, self._produce(sending, reports, deadline))
        while reports.count < len(sendings) and time.monotonic() < deadline + GRACE:
            self._producer.poll(_GLANCE)
        return {each.message_id: reports.get(each.message_id, "_TIMED_OUT") for each in sendings}

    def probe(self, seconds: float) -> str:
        """Ask the brokers for their state. Empty: they answer; else the error's name."""
        try:
            self._producer.list_topics(timeout=seconds)
        except KafkaException as error:
            return error_name(error)
        return "_FATAL" if self.is_broken else ""

    def was_down_since(self, began: float) -> bool:
        """Whether no broker could be reached at some time since then, in monotonic seconds."""
        return self._down_at >= began

    def close(self) -> None:
        """Let go of connections and threads. What is under way is given up."""
        self._producer.purge()
        self._producer.poll(0)

    def _produce(self, sending: Sending, reports: Reports, deadline: float) -> str | None:
        """Hand a record to the client. None: its report will come; else the error's name."""
        while True:
            try:
                self._producer.produce(
                    sending.topic,
                    value=sending.record.value,
                    key=sending.record.key,
                    headers=list(sending.record.headers),
                    on_delivery=reports.callback(sending.message_id),
                )
            except BufferError:  # its queue is full: the reports that make room are read here
                if time.monotonic() > deadline:
                    return "_TIMED_OUT_QUEUE"
                self._producer.poll(_GLANCE)
            except KafkaException as error:
                return error_name(error)
            else:
                return None

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.is_broken = True
        if error.name() == "_ALL_BROKERS_DOWN":
            self._down_at = time.monotonic()


class Reports:
    """What is known of one round's messages. Written in whichever thread reads the reports."""

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many messages have their report."""
        with self._lock:
            return len(self._names)

    def put(self, message_id: UUID, name: str | None) -> None:
        """Note an error's name, or ``CONFIRMED``; None is no report."""
        if name is not None:
            with self._lock:
                self._names[message_id] = name

    def get(self, message_id: UUID, default: str) -> str:
        """The report of a message."""
        with self._lock:
            return self._names.get(message_id, default)

    def callback(self, message_id: UUID) -> Callable[[KafkaError | None, Any], None]:
        """What the client calls with the report."""
        return lambda error, _: self.put(message_id, error.name() if error else CONFIRMED)


def error_name(error: KafkaException) -> str:
    """The name of the error that an exception carries; its text may quote configuration."""
    carried = error.args[0] if error.args else None
    return carried.name() if isinstance(carried, KafkaError) else type(error).__name__


def config_problem(options: KafkaOptions) -> str | None:
    """Why the client does not take its configuration: the property's name, where the client says it.

    Connects to nothing.
    """
    try:
        Producer({**options.client_config(), "log_level": 0})
    except KafkaException as error:
        text = str(error)
        named = [name for name in options.config if str(name) in text]
        return f"the property {named[0]!r}" if named else error_name(error)
    except (TypeError, ValueError) as error:
        return type(error).__name__
    return None
