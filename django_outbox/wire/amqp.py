"""A message as AMQP 0-9-1 properties, headers and body, written and read. Pure: no client is loaded.

Also what AMQP can carry at all, so that ``enqueue`` refuses the rest while somebody can still act
on it. The attributes are those of wire/cloudevents.py in binary form, prefix ``ce-``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from django_outbox.exceptions import MalformedMessage
from django_outbox.messages import JSON_CONTENT_TYPE, HeaderValue, Message
from django_outbox.wire.cloudevents import (
    PREFIXES,
    STRUCTURED_CONTENT_TYPE,
    attributes_of,
    header_value,
    is_json,
    message_from,
    parse_structured,
    split_headers,
)

#: Topic, ids, source and header names are AMQP short strings (4.2.5.3): this many bytes of UTF-8.
SHORT_STRING_BYTES: Final = 255
#: All headers of the caller together, encoded. The whole header frame must fit the broker's
#: ``frame_max`` (128 KiB unless configured), and what we write ourselves takes at most 8 KiB.
HEADERS_BYTES: Final = 64 * 1024
PERSISTENT: Final = 2

_BROKER_NAMES: Final = frozenset(
    {"CC", "BCC"}
)  # sender-selected distribution: they change the route
_BROKER_PREFIXES: Final = (
    "x-death",
    "x-first-death-",
    "x-last-death-",
    "x-delivery-count",
    "x-acquired-count",
    "x-received-from",
    "x-stream-",
    "x-opt-",
)
#: What our consumers note on a message that they put aside.
ASIDE_PREFIX: Final = "x-outbox-"
_OWN_PREFIXES: Final = (*(prefix.lower() for prefix in PREFIXES), ASIDE_PREFIX)


@dataclass(frozen=True, slots=True)
class AmqpProperties:
    """The ``basic`` properties that this wire format uses; ``None`` is not sent."""

    headers: Mapping[str, HeaderValue] = field(repr=False)
    message_id: str
    type: str
    content_type: str = JSON_CONTENT_TYPE
    delivery_mode: int = PERSISTENT
    correlation_id: str | None = field(default=None, repr=False)
    timestamp: int | None = None
    """Seconds since 1970."""
    app_id: str | None = None


class ReceivedProperties(Protocol):
    """What is read of a received message's properties: any client's object with these names."""

    @property
    def headers(self) -> Any: ...

    @property
    def message_id(self) -> Any: ...

    @property
    def type(self) -> Any: ...

    @property
    def content_type(self) -> Any: ...

    @property
    def content_encoding(self) -> Any: ...

    @property
    def correlation_id(self) -> Any: ...

    @property
    def timestamp(self) -> Any: ...

    @property
    def app_id(self) -> Any: ...


def to_amqp(message: Message) -> AmqpProperties:
    """The properties of a message. Its routing key is the topic, its body the stored JSON as UTF-8."""
    headers: dict[str, HeaderValue] = {
        f"ce-{name}": value for name, value in attributes_of(message).items()
    }
    if message.headers:
        own = {n: value for n, value in message.headers.items() if not n.startswith("ce-")}
        headers = own | headers
    return AmqpProperties(
        headers=headers,
        message_id=str(message.id),
        type=message.topic,
        correlation_id=message.correlation_id or None,
        timestamp=int(message.created_at.timestamp()) if message.created_at else None,
        app_id=message.source or None,
    )


def from_amqp(
    properties: ReceivedProperties,
    body: bytes,
    *,
    routing_key: str = "",
    redelivered: bool = False,
    attempt: int | None = None,
) -> Message:
    """The message that was received. Raises ``MalformedMessage`` naming the part that is wrong.

    ``attempt`` is the receiver's own count; None: what the broker says.
    Where an attribute's header is missing, the property that means the same stands in for it, and
    the routing key for the topic. Whether the body is JSON shows when ``payload`` is read.
    """
    received = properties.headers if isinstance(properties.headers, Mapping) else {}
    attributes, others = split_headers(received)
    own = _own_headers(others)
    if attempt is None:
        attempt = _attempt(received, redelivered)
    text = _body_text(properties, body)
    if _is_structured(properties.content_type):
        return parse_structured(text, own, attempt=attempt)
    if not is_json(properties.content_type):
        raise MalformedMessage("content_type", "is not JSON")
    stand_ins = {
        "id": properties.message_id,
        "type": properties.type or routing_key,
        "correlationid": properties.correlation_id,
        "source": properties.app_id,
        "time": None if "time" in attributes else _timestamp(properties.timestamp),
    }
    present = {name: value for name, value in stand_ins.items() if value not in (None, "")}
    return message_from({**present, **attributes}, text, own, attempt=attempt)


def header_problem(name: str, value: object) -> str | None:
    """Why AMQP, or this wire format, cannot carry this header; ``None`` where it can.

    The reason holds the name's length or the value's type, never the value.
    """
    return _name_problem(name) or value_problem(value)


def headers_problem(headers: Mapping[str, object]) -> str | None:
    """Why these headers cannot travel together; ``None`` where they can. Names the header at fault."""
    size = 0
    for name, value in headers.items():
        problem = header_problem(name, value)
        if problem is not None:
            return f"{name!r} {problem}"
        size += 1 + len(name.encode()) + _encoded_size(value)
    if size > HEADERS_BYTES:
        return f"together take {size:,} bytes; at most {HEADERS_BYTES:,} travel with a message"
    return None


def is_reserved(name: str) -> bool:
    """Whether the header belongs to this wire format or to the broker."""
    return name.lower().startswith(_OWN_PREFIXES) or is_brokers(name)


def is_brokers(name: str) -> bool:
    """Whether the broker writes the header or routes by it: left out when a message is sent on."""
    return name in _BROKER_NAMES or name.startswith(_BROKER_PREFIXES)


def _name_problem(name: object) -> str | None:
    if not isinstance(name, str):
        return f"has a name of type {type(name).__name__}; header names are strings"
    if not name:
        return "has an empty name"
    problem = _string_problem(name)
    if problem is not None:
        return f"has a name that {problem}"
    size = len(name.encode())
    if size > SHORT_STRING_BYTES:
        return f"has a name of {size:,} bytes; at most {SHORT_STRING_BYTES} travel"
    if is_reserved(name):
        return "has a name that belongs to the wire format or to the broker; choose another"
    return None


def value_problem(value: object) -> str | None:
    """Why AMQP cannot carry this value of a header; ``None`` where it can."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "is a number of more than 64 bits"
    if isinstance(value, str):
        problem = _string_problem(value)
        if problem is None and len(value.encode()) > HEADERS_BYTES:
            return f"is longer than {HEADERS_BYTES:,} bytes, all that travels with a message"
        return problem
    if isinstance(value, float):
        return "is a float, which AMQP clients truncate; write it as a string"
    return f"is of type {type(value).__name__}; strings, whole numbers, booleans and None travel"


def _string_problem(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which is no Unicode text"
    return None


def _encoded_size(value: object) -> int:
    if isinstance(value, str):
        return 5 + len(value.encode())
    if isinstance(value, bool):
        return 2
    return 1 if value is None else 9


def _own_headers(others: Mapping[str, object]) -> dict[str, HeaderValue]:
    own: dict[str, HeaderValue] = {}
    for name, value in others.items():
        if is_reserved(name):
            continue
        try:
            own[name] = header_value(value)
        except TypeError:
            continue  # tables, arrays and raw bytes are no header of ours
    return own


def _attempt(headers: Mapping[str, Any], redelivered: bool) -> int:
    deliveries = headers.get("x-delivery-count")
    if isinstance(deliveries, int) and deliveries >= 0:
        return int(deliveries) + 1
    return 2 if redelivered else 1


def _body_text(properties: ReceivedProperties, body: bytes) -> str:
    if properties.content_encoding not in (
        None,
        "",
        "utf-8",
        "UTF-8",
        "utf8",
        "identity",
        "binary",
    ):
        raise MalformedMessage("content_encoding", "is not UTF-8")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise MalformedMessage("body", "is not UTF-8") from None


def _is_structured(content_type: object) -> bool:
    return isinstance(content_type, str) and content_type.lower().startswith(
        STRUCTURED_CONTENT_TYPE
    )


def _timestamp(value: object) -> datetime | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        raise MalformedMessage("timestamp", "is not a time") from None
