"""What a payload may be: JSON that every database and every reader keeps as it is."""

from __future__ import annotations

import datetime
import json
import uuid
from collections import namedtuple
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.exceptions import InvalidPayload
from django_outbox.payloads import MAX_DEPTH, byte_length, json_text

Point = namedtuple("Point", "x y")


def nested(depth):
    payload = 1
    for _ in range(depth):
        payload = [payload]
    return payload


def circular():
    payload = {}
    payload["self"] = [payload]
    return payload


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"a": 1, "b": [True, None, 1.5]}, '{"a": 1, "b": [true, null, 1.5]}'),
        ({"total": Decimal("9.90")}, '{"total": "9.90"}'),
        ({"id": uuid.UUID(int=1)}, '{"id": "00000000-0000-0000-0000-000000000001"}'),
        ({"on": datetime.date(2026, 12, 1)}, '{"on": "2026-12-01"}'),
        (
            {"at": datetime.datetime(2026, 12, 1, 8, 30, tzinfo=datetime.UTC)},
            '{"at": "2026-12-01T08:30:00Z"}',
        ),
        ({"for": datetime.timedelta(minutes=2)}, '{"for": "P0DT00H02M00S"}'),
        ({"city": "Zürich 😀"}, '{"city": "Zürich 😀"}'),
        (Point(1, 2), "[1, 2]"),
        ({"literal": "\\u0000"}, '{"literal": "\\\\u0000"}'),
        ("text", '"text"'),
        (None, "null"),
        ({}, "{}"),
    ],
)
def test_a_payload_becomes_json_as_django_writes_it(payload, text):
    assert json_text("invoice.issued", payload) == text


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"price": float("nan")}, "at /price: NaN and Infinity"),
        ({"lines": [{"price": float("-inf")}]}, "at /lines/0/price: NaN and Infinity"),
        ({"price": Decimal("NaN")}, "at /price: NaN and Infinity"),
        ({"price": Decimal("sNaN")}, "at /price: NaN and Infinity"),
        ({"price": Decimal("Infinity")}, "at /price: NaN and Infinity"),
        ({"photo": b"\xff"}, "at /photo: a value of type bytes"),
        ({"tags": {"a"}}, "at /tags: a value of type set"),
        ({"when": datetime.time(8, tzinfo=datetime.UTC)}, "at /when: a value of type time"),
        ({"n": 10**5000}, "at /n: a value of type int"),
        ({1: "a"}, "a key is of type int"),
        ({"a": {True: 1}}, "at /a/*: a key is of type bool"),
        ({"a": [{None: 1}]}, "at /a/0/*: a key is of type NoneType"),
        ({"a": {(1, 2): 1}}, "at /a/*: a key is of type tuple"),
        ({"name": "a\0b"}, "at /name: a NUL character"),
        ({"a\0b": 1}, "at /*: a NUL character"),
        ({"name": "\udc80"}, "at /name: half of a surrogate pair"),
        ({"\ud800": 1}, "at /*: half of a surrogate pair"),
        (nested(MAX_DEPTH + 1), "levels deep"),
        (nested(100_000), "levels deep"),
        (circular(), "contains itself"),
        (object(), "a value of type object"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(payload, place):
    with pytest.raises(InvalidPayload) as refused:
        json_text("invoice.issued", payload)
    assert place in str(refused.value)
    assert refused.value.field == "payload"


def test_a_refusal_holds_neither_the_value_nor_a_key_that_may_be_one():
    payload = {"by_email": {"jane@example.com": {"name": "Jane Doe\0"}}}
    with pytest.raises(InvalidPayload) as refused:
        json_text("customer.moved", payload)
    assert "at /by_email/*/name" in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None  # an error of json would hold the whole document


def test_the_deepest_payload_that_is_taken_has_thirty_levels():
    assert json_text("a.b", nested(30)).count("[") == 30


_plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
_strings = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_json = st.recursive(
    _plain | _strings,
    lambda members: st.lists(members, max_size=4) | st.dictionaries(_strings, members, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_every_json_value_is_read_back_as_it_was(payload):
    text = json_text("a.b", payload)
    assert json.loads(text) == payload
    assert byte_length(text) == len(text.encode())
