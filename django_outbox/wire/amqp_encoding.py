"""A message's properties as bytes: what ``wire.amqp.to_amqp`` says, ready for the frame. Pure.

Written for speed, because it runs once for each message in the relay; a property test holds it to
what pika makes of ``to_amqp``.
"""

from __future__ import annotations

import struct
from datetime import datetime
from functools import lru_cache

from django_outbox.exceptions import UnsendableMessage
from django_outbox.messages import JSON_CONTENT_TYPE, Message
from django_outbox.wire.amqp import PERSISTENT, SHORT_STRING_BYTES, value_problem
from django_outbox.wire.cloudevents import ATTRIBUTES, attributes_of

_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_INT = struct.Struct(">ci")
_LONG = struct.Struct(">cq")
_TIME = struct.Struct(">Q")
_CONTENT_TYPE, _HEADERS, _DELIVERY_MODE = 1 << 15, 1 << 13, 1 << 12
_CORRELATION_ID, _MESSAGE_ID, _TIMESTAMP = 1 << 10, 1 << 7, 1 << 6
_TYPE, _APP_ID = 1 << 5, 1 << 3
_PERSISTENT_BYTE = bytes((PERSISTENT,))


def encoded_properties(message: Message) -> bytes:
    """The properties of ``to_amqp`` as they stand in a content header frame (AMQP 0-9-1, 4.2.6.1).

    The same bytes that pika makes of the same properties, in half the time: a third of what sending
    a message costs is this. Raises ``UnsendableMessage``, which names the part and holds no value.
    """
    flags = _CONTENT_TYPE | _HEADERS | _DELIVERY_MODE | _MESSAGE_ID | _TYPE
    table = _table(message)
    parts = [_known_short(JSON_CONTENT_TYPE, "content_type"), _LENGTH.pack(len(table)), table]
    parts.append(_PERSISTENT_BYTE)
    if message.correlation_id:
        flags |= _CORRELATION_ID
        parts.append(_short(message.correlation_id, "correlation_id"))
    parts.append(_short(str(message.id), "message_id"))
    if message.created_at is not None:
        flags |= _TIMESTAMP
        parts.append(_seconds(message.created_at))
    parts.append(_known_short(message.topic, "topic"))
    if message.source:
        flags |= _APP_ID
        parts.append(_known_short(message.source, "source"))
    return _FLAGS.pack(flags) + b"".join(parts)


def _table(message: Message) -> bytes:
    parts: list[bytes] = []
    add = parts.append
    for name, value in message.headers.items():
        if not name.startswith("ce-"):  # as in to_amqp, the attribute wins
            add(_known_short(name, "a header name"))
            add(_value(name, value))
    for name, text in attributes_of(message).items():
        raw = text.encode() if text.isascii() else _utf8(text, name)
        add(_ATTRIBUTE_NAMES[name])
        add(_LENGTH.pack(len(raw)))
        add(raw)
    return b"".join(parts)


def _short(text: str, part: str) -> bytes:
    raw = _utf8(text, part)
    if len(raw) > SHORT_STRING_BYTES:
        raise UnsendableMessage(part, f"takes {len(raw):,} bytes; AMQP carries 255")
    return bytes((len(raw),)) + raw


def _value(name: str, value: object) -> bytes:
    if isinstance(value, str):
        raw = _utf8(value, f"header {name!r}")
        return b"S" + _LENGTH.pack(len(raw)) + raw
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if value is None:
        return b"V"
    problem = value_problem(value)
    if problem is not None or not isinstance(value, int):
        raise UnsendableMessage(f"header {name!r}", str(problem))
    if -(2**31) <= value < 2**31:
        return _INT.pack(b"I", value)
    return _LONG.pack(b"l", value)


def _seconds(created_at: datetime) -> bytes:
    timestamp = int(created_at.timestamp())
    if timestamp < 0:
        raise UnsendableMessage("created_at", "is before 1970")
    return _TIME.pack(timestamp)


def _utf8(text: str, part: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UnsendableMessage(part, "holds a lone surrogate, which is no Unicode text") from None


#: For what is the same in message after message: header names, topics, the source.
_known_short = lru_cache(maxsize=2048)(_short)
#: The name of an attribute's header, and the mark of a long string.
_ATTRIBUTE_NAMES = {name: _short(f"ce-{name}", name) + b"S" for name in ATTRIBUTES}
