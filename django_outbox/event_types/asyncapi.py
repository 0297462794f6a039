"""The AsyncAPI 3.0 document of all registered event types (asyncapi.com/docs/reference/specification/v3.0.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_outbox.event_types.marks import Mark
from django_outbox.event_types.registry import SEALED_MEMBER, EventType

_JSON_SCHEMA = "application/schema+json;version=draft-2020-12"

#: The CloudEvents attributes and extensions that travel as headers (docs/reference/wire-format.md).
_HEADERS: Mapping[str, Any] = {
    "type": "object",
    "required": ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"],
    "properties": {
        "ce-specversion": {"const": "1.0"},
        "ce-id": {"type": "string", "format": "uuid", "description": "The message id."},
        "ce-source": {"type": "string"},
        "ce-type": {"type": "string", "description": "The topic."},
        "ce-subject": {"type": "string", "description": "The aggregate's id."},
        "ce-time": {"type": "string", "format": "date-time"},
        "ce-dataschema": {"type": "string"},
        "ce-partitionkey": {"type": "string"},
        "ce-sequence": {"type": "string", "pattern": "^[0-9]+$"},
        "ce-correlationid": {"type": "string"},
        "ce-causationid": {"type": "string"},
        "ce-schemaversion": {"type": "string"},
        "ce-aggregatetype": {"type": "string"},
        "traceparent": {"type": "string"},
        "tracestate": {"type": "string"},
    },
}


def asyncapi_document(
    event_types: list[EventType], *, title: str, version: str, exchange: str = ""
) -> dict[str, Any]:
    """The document, as JSON-like Python. ``exchange``: the topic exchange for the AMQP bindings.

    Payload schemas show members as they travel: a personal member is its sealed wrapper.
    """
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for event_type in event_types:
        topic, key = event_type.topic, f"{event_type.topic}.v{event_type.version}"
        messages[key] = _message(event_type)
        channel = channels.setdefault(topic, _channel(topic, exchange))
        channel["messages"][f"v{event_type.version}"] = {"$ref": f"#/components/messages/{key}"}
        operations[f"publish.{topic}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{topic}"},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": title, "version": version},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": {"headers": {"schemaFormat": _JSON_SCHEMA, "schema": dict(_HEADERS)}},
        },
    }


def _channel(topic: str, exchange: str) -> dict[str, Any]:
    channel: dict[str, Any] = {"address": topic, "messages": {}}
    if exchange:
        channel["bindings"] = {
            "amqp": {
                "is": "routingKey",
                "exchange": {"name": exchange, "type": "topic", "durable": True},
                "bindingVersion": "0.3.0",
            }
        }
    return channel


def _message(event_type: EventType) -> dict[str, Any]:
    message: dict[str, Any] = {
        "name": event_type.topic,
        "title": f"{event_type.topic}, version {event_type.version}",
        "contentType": "application/json",
        "headers": {"$ref": "#/components/schemas/headers"},
        "payload": {"schemaFormat": _JSON_SCHEMA, "schema": wire_schema(event_type)},
        "bindings": {
            "amqp": {"messageType": event_type.topic, "bindingVersion": "0.3.0"},
            "kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"},
        },
    }
    if event_type.description:
        message["description"] = event_type.description
    return message


def wire_schema(event_type: EventType) -> dict[str, Any]:
    """The payload's schema as it travels, with the wrapper in place of each personal member."""
    sealed = {
        **SEALED_MEMBER,
        "description": "Sealed: a JWE (RFC 7516), A256KW and A256GCM, of the member's JSON.",
        Mark.SENSITIVE.value: True,
    }
    return event_type.marks.wire_schema(sealed)
