"""Received properties: read whatever they hold, sent on as they came."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.wire.amqp_frames import RAW, PropertiesWrapper, raw_properties
from django_outbox.wire.amqp_properties import parse_properties

names = st.text(st.characters(max_codepoint=0x7F), min_size=1, max_size=20)
# What pika writes and reads back unchanged; the rest is in the table of types below.
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
short_texts = st.none() | st.text(max_size=60)
octets = st.none() | st.integers(0, 255)
properties = st.builds(
    pika.BasicProperties,
    headers=st.none() | st.dictionaries(names, values, max_size=6),
    content_type=short_texts,
    content_encoding=short_texts,
    delivery_mode=octets,
    priority=octets,
    correlation_id=short_texts,
    reply_to=short_texts,
    expiration=short_texts,
    message_id=short_texts,
    timestamp=st.none() | st.integers(0, 2**63),
    type=short_texts,
    user_id=short_texts,
    app_id=short_texts,
    cluster_id=short_texts,
)
FIELDS = [
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
]  # fmt: skip


def encoded(made: pika.BasicProperties) -> bytes:
    return b"".join(made.encode())


def keep(_: str) -> bool:
    return False


@given(properties)
def test_it_reads_what_pika_writes(made: pika.BasicProperties) -> None:
    read = parse_properties(encoded(made))
    assert read.fault == ""
    assert read.headers == (made.headers or {})
    for name in FIELDS:
        assert getattr(read, name) == getattr(made, name), name


@given(properties)
def test_a_copy_differs_only_in_what_it_was_told(made: pika.BasicProperties) -> None:
    raw = encoded(made)
    copy = parse_properties(
        parse_properties(raw).copied(
            without=lambda name: name.startswith("a"), notes={"n": 7, "s": "ü"}, expiration="5"
        )
    )
    assert copy.fault == ""
    kept = {k: v for k, v in (made.headers or {}).items() if not k.startswith("a")}
    assert copy.headers == {"n": 7, "s": "ü"} | kept
    assert copy.delivery_mode == 2
    assert copy.expiration == "5"
    assert copy.user_id is None
    for name in set(FIELDS) - {"delivery_mode", "expiration", "user_id"}:
        assert getattr(copy, name) == getattr(made, name), name


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_it_raise(raw: bytes) -> None:
    read = parse_properties(raw)
    parse_properties(read.copied(without=keep, notes={"n": 1}))


@given(properties, st.data())
def test_what_breaks_off_has_a_fault(made: pika.BasicProperties, data: st.DataObject) -> None:
    raw = encoded(made)
    if len(raw) == 2:
        return
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    assert parse_properties(cut).fault != ""


def headers_only(table: bytes) -> bytes:
    return struct.pack(">HI", 1 << 13, len(table)) + table


def entry(name: str, value: bytes) -> bytes:
    return bytes((len(name),)) + name.encode() + value


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"t\x01", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfe", -2),
        (b"i\xff\xff\xff\xfe", 2**32 - 2),
        (b"l" + struct.pack(">q", -(2**63)), -(2**63)),
        (b"f" + struct.pack(">f", 1.5), 1.5),
        (b"d" + struct.pack(">d", 0.1), 0.1),
        (b"D\x02" + struct.pack(">i", -12345), Decimal("-123.45")),
        (b"S" + long(b"text"), "text"),
        (b"S" + long(b"\xff\xfe"), b"\xff\xfe"),
        (b"x" + long(b"\xff\xfe"), b"\xff\xfe"),
        (b"V", None),
        (b"T" + struct.pack(">Q", 0), datetime(1970, 1, 1, tzinfo=UTC)),
        (b"T" + struct.pack(">Q", 2**62), 2**62),
        (b"A" + long(b"t\x00V"), [False, None]),
        (b"F" + long(entry("x", b"V")), {"x": None}),
    ],
)
def test_a_value_of_each_type_is_read_and_copied_byte_by_byte(value: bytes, read: Any) -> None:
    received = parse_properties(headers_only(entry("h", value)))
    assert received.fault == ""
    assert received.headers == {"h": read}
    assert entry("h", value) in received.copied(without=keep, notes={})


def test_a_number_that_is_none_is_no_fault() -> None:
    received = parse_properties(headers_only(entry("h", b"d" + struct.pack(">d", math.nan))))
    assert received.fault == ""
    assert math.isnan(received.headers["h"])


def test_behind_a_type_that_does_not_exist_nothing_is_read_and_everything_is_kept() -> None:
    table = entry("first", b"V") + entry("h", b"?123") + entry("last", b"V")
    received = parse_properties(headers_only(table))
    assert received.fault == "its headers cannot be read"
    assert received.headers == {"first": None}
    copy = received.copied(without=lambda name: name == "first", notes={"n": 1})
    assert entry("h", b"?123") + entry("last", b"V") in copy
    assert entry("first", b"V") not in copy
    assert parse_properties(copy).headers == {"n": 1}


def test_tables_nested_without_end_are_a_fault() -> None:
    value = b"V"
    for _ in range(5_000):
        value = b"F" + long(entry("x", value))
    assert parse_properties(headers_only(entry("h", value))).fault != ""


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def header_frame(raw: bytes, size: int = 3) -> bytes:
    return frame(2, struct.pack(">HHQ", 60, 0, size) + raw)


@given(st.lists(st.tuples(properties, st.binary(max_size=50)), max_size=4), st.data())
def test_wrapped_properties_come_out_as_they_came_in_any_cut(
    messages: list[tuple[pika.BasicProperties, bytes]], data: st.DataObject
) -> None:
    stream, expected = b"", b""
    for made, body in messages:
        raw = encoded(made)
        stream += frame(1, b"deliver") + header_frame(raw) + frame(3, body) + frame(8, b"", 0)
        expected += raw
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    wrapper = PropertiesWrapper()
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    out = b"".join(wrapper(piece) for piece in pieces)
    found = b""
    for kind, payload in frames(out):
        if kind == 2:
            read = pika.BasicProperties()
            read.decode(payload[12:])
            assert list(read.headers) == [RAW]
            found += raw_properties(read)
    assert found == expected
    assert [kind for kind, _ in frames(out)] == [1, 2, 3, 8] * len(messages)


def frames(stream: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(stream):
        kind, _, size = struct.unpack_from(">BHI", stream, at)
        assert stream[at + 7 + size : at + 8 + size] == b"\xce"
        found.append((kind, stream[at + 7 : at + 7 + size]))
        at += 8 + size
    return found


def test_the_answer_of_a_server_of_another_version_goes_through() -> None:
    assert PropertiesWrapper()(b"AMQP\x00\x01\x00\x00") == b"AMQP\x00\x01\x00\x00"
