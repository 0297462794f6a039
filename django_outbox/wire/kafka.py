"""A message as a Kafka record, written. Pure: no client is loaded.

Format: the binary content mode of the CloudEvents Kafka protocol binding 1.0.2: every attribute is a
header ``ce_…``, the value is the payload's JSON as it is stored, and the key is the partition key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from django_outbox.messages import JSON_CONTENT_TYPE, HeaderValue, Message
from django_outbox.wire.cloudevents import attributes_of

PREFIX: Final = "ce_"
CONTENT_TYPE: Final = "content-type"


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """What a producer takes."""

    key: bytes | None
    """The aggregate id: one aggregate's records share a partition, and so keep their order."""
    value: bytes = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = field(repr=False)


def to_kafka(message: Message) -> KafkaRecord:
    """The record that carries the message.

    A caller's own header that would pass for an attribute or for the content type is left out; null
    is an empty value, as records know no other. Raises ``UnicodeEncodeError`` for a lone surrogate.
    """
    headers = {CONTENT_TYPE: JSON_CONTENT_TYPE.encode()}
    for name, value in message.headers.items():
        if not name.startswith(PREFIX) and name.lower() != CONTENT_TYPE:
            headers[name] = _header_text(value).encode()
    for name, text in attributes_of(message).items():
        headers[PREFIX + name] = text.encode()
    key = message.aggregate_id.encode() if message.is_ordered else None
    return KafkaRecord(key, message.body.encode(), tuple(headers.items()))


def _header_text(value: HeaderValue) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
