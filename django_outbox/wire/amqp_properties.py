"""Received properties as bytes: read without giving up, sent on without loss. Pure.

Clients of other languages put every type of AMQP into headers. Over some of their values (a date in
the year 10000, a NaN) pika raises in the middle of the connection, and others (floats) it rounds. No
message may be lost, nor its neighbours be delayed, over a header that nobody reads: what has no
meaning in Python stays bytes here, and a copy of the message has the very bytes that came.

Format: AMQP 0-9-1, 4.2.5 and 4.2.6.1, with the types of table values that RabbitMQ has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_DECIMAL = struct.Struct(">Bi")
_UNSIGNED_64 = struct.Struct(">Q")
_SIGNED_64 = struct.Struct(">q")

#: The properties in the order of their flags, from the highest bit down, and how each is written.
_FIELDS: Final = (
    ("content_type", "short"),
    ("content_encoding", "short"),
    ("headers", "table"),
    ("delivery_mode", "octet"),
    ("priority", "octet"),
    ("correlation_id", "short"),
    ("reply_to", "short"),
    ("expiration", "short"),
    ("message_id", "short"),
    ("timestamp", "time"),
    ("type", "short"),
    ("user_id", "short"),
    ("app_id", "short"),
    ("cluster_id", "short"),
)
_SIZES: Final = {"octet": 1, "time": 8}
#: Bits below those of the properties: the lowest says that more flags follow, which none has.
_NO_PROPERTY: Final = 0b11
_PERSISTENT: Final = b"\x02"
_STRING: Final = ord("S")
#: Table values of fixed length, by their tag.
_NUMBERS: Final = {
    ord("t"): struct.Struct(">?"),
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">i"),
    ord("i"): struct.Struct(">I"),
    ord("l"): _SIGNED_64,
    ord("L"): _SIGNED_64,
    ord("f"): struct.Struct(">f"),
    ord("d"): struct.Struct(">d"),
}
#: Tables in tables in tables: no header of anybody's, and the end of Python's stack.
_DEEPEST: Final = 32


@dataclass(frozen=True, slots=True)
class RawProperties:
    """The properties of one received message, under the names that every AMQP client has."""

    headers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Values of types that Python lacks are bytes; a date that it cannot hold is a number."""
    content_type: str | bytes | None = None
    content_encoding: str | bytes | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | bytes | None = field(default=None, repr=False)
    reply_to: str | bytes | None = None
    expiration: str | bytes | None = None
    message_id: str | bytes | None = None
    timestamp: int | None = None
    """Seconds since 1970."""
    type: str | bytes | None = None
    user_id: str | bytes | None = None
    app_id: str | bytes | None = None
    cluster_id: str | bytes | None = None

    fault: str = ""
    """What does not follow the format; empty where everything does. What comes before it is kept."""
    pieces: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Every property but the headers as it came."""
    entries: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """Every header: its name, and the whole entry as it came."""
    rest: bytes = field(default=b"", repr=False)
    """What stands in the header table from its fault on."""

    def copied(
        self,
        *,
        without: Callable[[str], bool],
        notes: Mapping[str, str | int],
        expiration: str = "",
    ) -> bytes:
        """The properties for a copy of the message: persistent, each byte as it came, but for these.

        Headers that ``without`` names are left out, ``notes`` are added. The expiration is the
        copy's own, and the user id is dropped, which the broker compares with the connection's user.
        """
        table = b"".join(_entry(name, value) for name, value in notes.items())
        table += b"".join(entry for name, entry in self.entries if not without(name))
        pieces = {**self.pieces, "headers": _long(table + self.rest), "delivery_mode": _PERSISTENT}
        for name in ("expiration", "user_id"):
            pieces.pop(name, None)
        if expiration:
            pieces["expiration"] = _short(expiration)
        flags = sum(1 << (15 - n) for n, (name, _) in enumerate(_FIELDS) if name in pieces)
        return _FLAGS.pack(flags) + b"".join(pieces[name] for name, _ in _FIELDS if name in pieces)


def parse_properties(raw: bytes) -> RawProperties:
    """The properties in a content header frame. Raises nothing: see ``RawProperties.fault``."""
    pieces: dict[str, bytes] = {}
    read: dict[str, Any] = {}
    fault = ""
    try:
        fault = _read_fields(raw, pieces, read)
    except (struct.error, IndexError, ValueError):
        fault = "its properties break off"
    table = pieces.pop("headers", b"\0\0\0\0")[4:]
    entries: list[tuple[str, bytes]] = []
    headers: dict[str, Any] = {}
    at = 0
    try:
        while at < len(table):
            value_at = at + 1 + table[at]
            value, end = _read_value(table, value_at, 0)
            name = table[at + 1 : value_at].decode(errors="replace")
            headers[name] = value
            entries.append((name, table[at:end]))
            at = end
    except (struct.error, IndexError, ValueError):
        fault = fault or "its headers cannot be read"
    return RawProperties(
        headers=headers,
        fault=fault,
        pieces=pieces,
        entries=tuple(entries),
        rest=table[at:],
        **read,
    )


def _read_fields(raw: bytes, pieces: dict[str, bytes], read: dict[str, Any]) -> str:
    (flags,) = _FLAGS.unpack_from(raw)
    at = 2
    for name, form in _fields(flags):
        value: Any
        if form == "short":
            value, end = _read_short(raw, at)
        elif form == "table":
            value, end = None, at + 4 + _LENGTH.unpack_from(raw, at)[0]
        else:
            end = at + _SIZES[form]
            value = int.from_bytes(raw[at:end], "big")
        if end > len(raw):
            raise IndexError
        pieces[name] = raw[at:end]
        if form != "table":
            read[name] = value
        at = end
    return "its properties have unknown flags" if flags & _NO_PROPERTY else ""


@lru_cache(maxsize=256)
def _fields(flags: int) -> tuple[tuple[str, str], ...]:
    """The fields that these flags announce, in their order."""
    return tuple(field for n, field in enumerate(_FIELDS) if flags & 1 << (15 - n))


def _read_short(raw: bytes, at: int) -> tuple[str | bytes, int]:
    end = at + 1 + raw[at]
    if end > len(raw):
        raise IndexError
    return _text(raw[at + 1 : end]), end


def _read_value(raw: bytes, at: int, depth: int) -> tuple[Any, int]:
    """A table value with its tag, and where it ends."""
    tag, at = raw[at], at + 1
    if tag == _STRING:  # nearly every header there is
        end = at + 4 + _LENGTH.unpack_from(raw, at)[0]
        if end > len(raw):
            raise IndexError
        return _text(raw[at + 4 : end]), end
    number = _NUMBERS.get(tag)
    if number is not None:
        return number.unpack_from(raw, at)[0], at + number.size
    match chr(tag):
        case "V":
            return None, at
        case "T":
            return _date(_UNSIGNED_64.unpack_from(raw, at)[0]), at + 8
        case "D":
            scale, digits = _DECIMAL.unpack_from(raw, at)
            return Decimal(digits).scaleb(-scale), at + _DECIMAL.size
    end = at + 4 + _LENGTH.unpack_from(raw, at)[0]
    if end > len(raw) or depth > _DEEPEST:
        raise IndexError
    inner = raw[at + 4 : end]
    match chr(tag):
        case "x":
            return inner, end
        case "A":
            return _read_array(inner, depth + 1), end
        case "F":
            return _read_table(inner, depth + 1), end
    raise ValueError


def _read_array(raw: bytes, depth: int) -> list[Any]:
    values, at = [], 0
    while at < len(raw):
        value, at = _read_value(raw, at, depth)
        values.append(value)
    return values


def _read_table(raw: bytes, depth: int) -> dict[str | bytes, Any]:
    values, at = {}, 0
    while at < len(raw):
        name, at = _read_short(raw, at)
        values[name], at = _read_value(raw, at, depth)
    return values


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _date(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return seconds


def _entry(name: str, value: str | int) -> bytes:
    if isinstance(value, int):
        return _short(name) + b"l" + _SIGNED_64.pack(value)
    return _short(name) + b"S" + _long(value.encode())


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


def _long(raw: bytes) -> bytes:
    return _LENGTH.pack(len(raw)) + raw
