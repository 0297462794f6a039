"""Spans by the messaging semantic conventions of OpenTelemetry (1.41, status: development).

    create  PRODUCER  in the producer's transaction; its context travels as ``traceparent``
    send    CLIENT    in the relay, around the call of the publisher; linked to the create spans
    process CONSUMER  around the consumer's transaction; linked to the create and the send span

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/

No attribute holds anything of a payload, of a header, or of an aggregate: ids of aggregates and
correlation ids may be a person's. Exceptions are named by their class; their text may hold values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_outbox import __version__
from django_outbox.logs import class_name
from django_outbox.messages import HeaderValue, Message
from django_outbox.observers import Consuming, Observer, Publishing
from django_outbox.publishers.base import Outcome

SYSTEM: Final = "django_outbox"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"
TRACEPARENT: Final = "traceparent"
#: Names the send span. ``traceparent`` names the create span from end to end, as the conventions have it.
SENT_BY: Final = "outbox-traceparent"
#: The SDK keeps so many links of a span unless told otherwise; a round of more has several send spans.
LINKS_PER_SPAN: Final = 128

# Trace context alone, whatever propagators the process has: baggage may hold anything.
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FAULTS: Final = frozenset({Outcome.REJECTED, Outcome.FAILED, Outcome.BROKER_DOWN})


class TracingObserver(Observer):
    """Makes the spans."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(SYSTEM, __version__, tracer_provider, SCHEMA_URL)

    def headers_for(
        self, topic: str, message_id: UUID, given: Mapping[str, HeaderValue]
    ) -> Mapping[str, str]:
        """The context of a create span. None where the caller gave a context of its own."""
        if TRACEPARENT in given:
            return {}
        span = self._tracer.start_span(
            f"create {topic}",
            kind=SpanKind.PRODUCER,
            attributes={**_operation("enqueue", "create"), **_about(topic, message_id)},
        )
        span.end()
        return _headers(span)

    @contextmanager
    def publishing(self, publishing: Publishing) -> Iterator[None]:
        """Send spans around the call, and their context in the messages that go out."""
        messages = publishing.messages
        parts = [
            messages[start : start + LINKS_PER_SPAN]
            for start in range(0, len(messages), LINKS_PER_SPAN)
        ]
        spans = [self._send_span(publishing.publisher, part) for part in parts]
        publishing.messages = [
            message
            for span, part in zip(spans, parts, strict=True)
            for message in _sent_by(span, part)
        ]
        with ExitStack() as stack:
            for span in spans:
                stack.callback(span.end)
            if len(spans) == 1:
                # What a client library makes of this call belongs to it.
                stack.enter_context(trace.use_span(spans[0], **_QUIETLY))
            try:
                yield
            except Exception as error:
                for span in spans:
                    _fail(span, class_name(error))
                raise
            failed = [r for r in publishing.receipts if r.outcome in _FAULTS]
            causes = {receipt.message_id: receipt.kind for receipt in failed}
            for span, part in zip(spans, parts, strict=True):
                cause = next((causes[each.id] for each in part if each.id in causes), None)
                if cause is not None:
                    _fail(span, cause)

    @contextmanager
    def consuming(self, consuming: Consuming) -> Iterator[None]:
        """A process span around the consumer's transaction."""
        messages = consuming.messages
        with self._tracer.start_as_current_span(
            _named("process", messages),
            context=_parent_of(messages),
            kind=SpanKind.CONSUMER,
            attributes={
                **_operation("process", "process"),
                **_about_all(messages),
                "messaging.consumer.group.name": consuming.consumer,
            },
            links=[link for each in messages for link in _links(each, TRACEPARENT, SENT_BY)],
            **_QUIETLY,
        ) as span:
            try:
                yield
            except Exception as error:
                _fail(span, class_name(error))
                raise
            if len(consuming.processed) == 1:
                span.set_attribute("django_outbox.outcome", consuming.processed[0].name.lower())

    def _send_span(self, publisher: str, messages: Sequence[Message]) -> Span:
        return self._tracer.start_span(
            _named("send", messages),
            kind=SpanKind.CLIENT,
            attributes={
                **_operation("publish", "send"),
                **_about_all(messages),
                "django_outbox.publisher": publisher,
            },
            links=[link for each in messages for link in _links(each, TRACEPARENT)],
        )


#: Without the text of exceptions.
_QUIETLY: Final[Any] = {"record_exception": False, "set_status_on_exception": False}


def _operation(name: str, kind: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


def _about(topic: str, message_id: UUID) -> dict[str, str]:
    return {"messaging.destination.name": topic, "messaging.message.id": str(message_id)}


def _about_all(messages: Sequence[Message]) -> dict[str, str | int]:
    """What is the same for all of them; what differs stands at their links."""
    if len(messages) == 1:
        return dict(_about(messages[0].topic, messages[0].id))
    found: dict[str, str | int] = {"messaging.batch.message_count": len(messages)}
    topics = {each.topic for each in messages}
    if len(topics) == 1:
        found["messaging.destination.name"] = topics.pop()
    return found


def _named(operation: str, messages: Sequence[Message]) -> str:
    topics = {each.topic for each in messages}
    return f"{operation} {topics.pop()}" if len(topics) == 1 else operation


def _headers(span: Span) -> dict[str, str]:
    """``traceparent`` and ``tracestate``; nothing where nobody traces."""
    carrier: dict[str, str] = {}
    if not span.get_span_context().is_valid:
        return carrier
    _PROPAGATOR.inject(carrier, context=trace.set_span_in_context(span, Context()))
    return carrier


def _sent_by(span: Span, messages: Sequence[Message]) -> Sequence[Message]:
    context = _headers(span).get(TRACEPARENT)
    if context is None:
        return messages
    return [replace(each, headers={**each.headers, SENT_BY: context}) for each in messages]


def _span_context(message: Message, name: str) -> SpanContext | None:
    carrier = {TRACEPARENT: message.headers.get(name)}
    if not isinstance(carrier[TRACEPARENT], str):
        return None
    if name == TRACEPARENT and isinstance(message.headers.get("tracestate"), str):
        carrier["tracestate"] = message.headers["tracestate"]
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def _links(message: Message, *names: str) -> Iterator[Link]:
    for name in names:
        context = _span_context(message, name)
        if context is not None:
            yield Link(context, _about(message.topic, message.id))


def _parent_of(messages: Sequence[Message]) -> Context | None:
    """The create span of a single message, unless the work takes place inside another span."""
    if len(messages) != 1 or trace.get_current_span().get_span_context().is_valid:
        return None
    created = _span_context(messages[0], TRACEPARENT)
    return None if created is None else trace.set_span_in_context(NonRecordingSpan(created))


def _fail(span: Span, cause: str) -> None:
    span.set_attribute("error.type", cause)
    span.set_status(Status(StatusCode.ERROR, cause))
