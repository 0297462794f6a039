"""What this process does: counters and histograms, fed by the signals and by watching calls.

With several processes behind one port, ``PROMETHEUS_MULTIPROC_DIR`` sums them up as for any other metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from time import perf_counter
from typing import Any, Final, TypeVar

from django.dispatch import Signal
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from django_outbox import signals
from django_outbox.consumers.registry import Consumer
from django_outbox.contrib.prometheus.labels import topic_label
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage
from django_outbox.observers import (
    Consuming,
    Observer,
    Publishing,
    add_observer,
    remove_observer,
)

#: Seconds. A confirm takes milliseconds, a time-out 20 s.
_CALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
#: Seconds. From a commit that wakes a relay to an outage of half a day.
_WAY_BUCKETS: Final = (
    0.01,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    900,
    3600,
    14400,
    43200,
)

M = TypeVar("M", Counter, Gauge, Histogram)


class ProcessMetrics:
    """The metrics of one process in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return self._keep(Counter(f"django_outbox_{name}", text, labels, registry=registry))

        def histogram(name: str, text: str, label: str, buckets: Sequence[float]) -> Histogram:
            name = f"django_outbox_{name}"
            made = Histogram(name, text, [label], registry=registry, buckets=buckets)
            return self._keep(made)

        self._registry = registry
        self._made: list[Any] = []
        self.enqueued = counter(
            "enqueued", "Messages enqueued, those of transactions rolled back later too.", "topic"
        )
        self.published = counter(
            "published", "Messages confirmed by a broker and settled.", "topic"
        )
        self.retried = counter(
            "retried", "Failed attempts after which the message is tried again.", "topic", "cause"
        )
        self.dead = counter("dead", "Messages given up until somebody acts.", "topic", "cause")
        self.receipts = counter(
            "receipts",
            "What brokers said of the messages they were handed.",
            "publisher",
            "outcome",
        )
        self.leases_lost = counter("leases_lost", "Messages settled after their lease was lost.")
        self.pruned = counter("pruned", "Rows deleted after their retention.", "kind")
        self.consumed = counter(
            "consumed", "Messages by what a consumer did.", "consumer", "outcome"
        )
        self.publish_seconds = histogram(
            "publish_seconds",
            "One round handed to a broker and answered.",
            "publisher",
            _CALL_BUCKETS,
        )
        self.end_to_end_seconds = histogram(
            "end_to_end_seconds", "From enqueue to settled as published.", "topic", _WAY_BUCKETS
        )
        self.handling_seconds = histogram(
            "handling_seconds", "One transaction of a consumer.", "consumer", _CALL_BUCKETS
        )
        self.delivery_seconds = histogram(
            "delivery_seconds", "From enqueue to handled.", "consumer", _WAY_BUCKETS
        )
        self.breaker_open = self._keep(
            Gauge(
                "django_outbox_breaker_open",
                "1 while this process finds the publisher's broker down.",
                ["publisher"],
                registry=registry,
                multiprocess_mode="livemax",
            )
        )
        self._observer = _Stopwatch(self)

    def connect(self) -> None:
        """Count from here on."""
        for signal, receiver in self._receivers():
            signal.connect(receiver, weak=False, dispatch_uid=self._uid(receiver))
        add_observer(self._observer)

    def disconnect(self) -> None:
        """Count no more."""
        for signal, receiver in self._receivers():
            signal.disconnect(dispatch_uid=self._uid(receiver))
        remove_observer(self._observer)

    def unregister(self) -> None:
        """Take the metrics out of the registry."""
        for metric in self._made:
            self._registry.unregister(metric)

    def _keep(self, metric: M) -> M:
        self._made.append(metric)
        return metric

    def _receivers(self) -> list[tuple[Signal, Callable[..., None]]]:
        return [
            (signals.message_enqueued, self._on_enqueued),
            (signals.message_published, self._on_published),
            (signals.message_failed, self._on_failed),
            (signals.message_dead, self._on_dead),
            (signals.lease_lost, self._on_lease_lost),
            (signals.breaker_opened, self._on_breaker_opened),
            (signals.breaker_closed, self._on_breaker_closed),
            (signals.consumer_failed, self._on_consumer_failed),
            (signals.messages_pruned, self._on_pruned),
        ]

    def _uid(self, receiver: Callable[..., None]) -> tuple[int, str]:
        return id(self), receiver.__name__

    def _on_enqueued(self, messages: list[OutboxMessage], **kwargs: Any) -> None:
        for message in messages:
            self.enqueued.labels(topic_label(message.topic)).inc()

    def _on_published(self, messages: list[Message], **kwargs: Any) -> None:
        now = datetime.now(UTC)
        for topic, group in groupby(messages, key=lambda message: message.topic):
            label = topic_label(topic)
            published, way = self.published.labels(label), self.end_to_end_seconds.labels(label)
            for message in group:
                published.inc()
                _observe_way(way, message, now)

    def _on_failed(self, message: Message, cause: str, **kwargs: Any) -> None:
        self.retried.labels(topic_label(message.topic), cause).inc()

    def _on_dead(self, message: Message, cause: str, **kwargs: Any) -> None:
        self.dead.labels(topic_label(message.topic), cause).inc()

    def _on_lease_lost(self, count: int, **kwargs: Any) -> None:
        self.leases_lost.inc(count)

    def _on_breaker_opened(self, publisher: str, **kwargs: Any) -> None:
        self.breaker_open.labels(publisher).set(1)

    def _on_breaker_closed(self, publisher: str, **kwargs: Any) -> None:
        self.breaker_open.labels(publisher).set(0)

    def _on_consumer_failed(self, consumer: Consumer, **kwargs: Any) -> None:
        self.consumed.labels(consumer.name, "failed").inc()

    def _on_pruned(self, deleted: dict[str, int], **kwargs: Any) -> None:
        for kind, count in deleted.items():
            self.pruned.labels(kind).inc(count)


class _Stopwatch(Observer):
    """Times the calls of publishers and consumers."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    @contextmanager
    def publishing(self, publishing: Publishing) -> Iterator[None]:
        began = perf_counter()
        yield
        alias = publishing.publisher
        self._metrics.publish_seconds.labels(alias).observe(perf_counter() - began)
        for receipt in publishing.receipts:
            self._metrics.receipts.labels(alias, receipt.kind).inc()

    @contextmanager
    def consuming(self, consuming: Consuming) -> Iterator[None]:
        began = perf_counter()
        yield  # what raises is counted by the signal, once for each message at fault
        name, now = consuming.consumer, datetime.now(UTC)
        self._metrics.handling_seconds.labels(name).observe(perf_counter() - began)
        way = self._metrics.delivery_seconds.labels(name)
        for message, processed in zip(consuming.messages, consuming.processed, strict=True):
            self._metrics.consumed.labels(name, processed.name.lower()).inc()
            if processed.name == "HANDLED":
                _observe_way(way, message, now)


def _observe_way(histogram: Any, message: Message, now: datetime) -> None:
    """From the row's time, by the database's clock, to now by this process's: never below nothing."""
    if message.created_at is not None:
        histogram.observe(max((now - message.created_at).total_seconds(), 0.0))
