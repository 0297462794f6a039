"""Spans for Sentry's page on queues, and the headers ``sentry-trace`` and ``baggage`` on the message.

https://docs.sentry.io/platforms/python/tracing/instrumentation/custom-instrumentation/queues-module/

Spans hold the topic, the message id, the size and how long the message was under way: nothing of its
payload, its headers or its aggregate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import sentry_sdk

from django_outbox.messages import HeaderValue, Message
from django_outbox.observers import Consuming, Observer

SENTRY_TRACE: Final = "sentry-trace"
BAGGAGE: Final = "baggage"
ORIGIN: Final = "auto.queue.django_outbox"


class SentryObserver(Observer):
    """Makes the spans, where Sentry is initialised."""

    def headers_for(
        self, topic: str, message_id: UUID, given: Mapping[str, HeaderValue]
    ) -> Mapping[str, str]:
        """The trace that the producer is in; nothing where the caller gave one of its own."""
        if SENTRY_TRACE in given or not sentry_sdk.is_initialized():
            return {}
        with sentry_sdk.start_span(op="queue.publish", name=topic, origin=ORIGIN) as span:
            span.set_data("messaging.message.id", str(message_id))
            span.set_data("messaging.destination.name", topic)
            carried = {
                SENTRY_TRACE: sentry_sdk.get_traceparent(),
                BAGGAGE: sentry_sdk.get_baggage(),
            }
        return {name: value for name, value in carried.items() if value}

    @contextmanager
    def consuming(self, consuming: Consuming) -> Iterator[None]:
        """A span around the consumer's transaction, in the producer's trace or the one at work."""
        if not sentry_sdk.is_initialized():
            yield
            return
        with (
            _trace(consuming),
            sentry_sdk.start_span(
                op="queue.process", name=consuming.consumer, origin=ORIGIN
            ) as span,
        ):
            if len(consuming.messages) == 1:
                _describe(span, consuming.messages[0])
            yield


@contextmanager
def _trace(consuming: Consuming) -> Iterator[None]:
    """A transaction of its own, unless one is at work: a Celery task's, for example."""
    if sentry_sdk.get_current_span() is not None:
        yield
        return
    with sentry_sdk.isolation_scope():
        found = [_carried(message) for message in consuming.messages]
        headers = found[0] if len(found) == 1 else {}
        transaction = sentry_sdk.continue_trace(
            headers, op="queue.process", name=consuming.consumer, source="task", origin=ORIGIN
        )
        with sentry_sdk.start_transaction(transaction):
            yield


def _carried(message: Message) -> dict[str, Any]:
    return {
        name: message.headers[name]
        for name in (SENTRY_TRACE, BAGGAGE)
        if isinstance(message.headers.get(name), str)
    }


def _describe(span: Any, message: Message) -> None:
    span.set_data("messaging.message.id", str(message.id))
    span.set_data("messaging.destination.name", message.topic)
    span.set_data("messaging.message.body.size", len(message.body.encode()))
    span.set_data("messaging.message.retry.count", message.attempt - 1)
    if message.created_at is not None:
        under_way = datetime.now(UTC) - message.created_at
        span.set_data("messaging.message.receive.latency", under_way.total_seconds() * 1000)
