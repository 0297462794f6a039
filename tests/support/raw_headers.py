"""Headers written byte by byte: one of every AMQP type, and what clients trip over."""

from __future__ import annotations

import struct
from typing import Any

from django_outbox.brokers.rabbitmq.rounds import EncodedProperties


def short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


#: One header of every type that RabbitMQ takes, and values that clients trip over. (A NaN, or a type
#: that does not exist, costs the publisher its connection: the broker lets none in.)
EVERY_TYPE = {
    "boolean": b"t\x01",
    "int8": b"b\xff",
    "uint8": b"B\xff",
    "int16": b"s\xff\xfe",
    "uint16": b"u\xff\xfe",
    "int32": b"I" + struct.pack(">i", -5),
    "uint32": b"i" + struct.pack(">I", 2**32 - 1),
    "int64": b"l" + struct.pack(">q", -(2**62)),
    "uint64": b"L" + struct.pack(">Q", 2**63 + 5),
    "float": b"f" + struct.pack(">f", 1.5),
    "double": b"d" + struct.pack(">d", 0.1),
    "decimal": b"D\x02" + struct.pack(">i", 12345),
    "string": b"S" + long("Ünïcode".encode()),
    "no text": b"S" + long(b"\xff\xfe"),
    "array": b"A" + long(b"t\x01I" + struct.pack(">i", 7)),
    "table": b"F" + long(short("inner") + b"F" + long(short("deep") + b"V")),
    "void": b"V",
    "bytes": b"x" + long(b"\x00\xff\x01"),
    "timestamp": b"T" + struct.pack(">Q", 1_700_000_000),
    "year 146 billion": b"T" + struct.pack(">Q", 2**62),
}


def raw_properties(
    headers: dict[str, bytes], content_type: str = "application/json", encoding: str = ""
) -> Any:
    """Properties whose header values are written byte by byte."""
    table = b"".join(short(name) + value for name, value in headers.items())
    flags = struct.pack(">H", (1 << 15) | (bool(encoding) << 14) | (1 << 13))
    encoded = short(encoding) if encoding else b""
    return EncodedProperties(flags + short(content_type) + encoded + long(table))


def text(value: str) -> bytes:
    """A header's value that is a string."""
    return b"S" + long(value.encode())
