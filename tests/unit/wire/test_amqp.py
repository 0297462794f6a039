"""What we say of AMQP is held against what pika really encodes and decodes."""

from contextlib import suppress
from dataclasses import asdict, replace
from uuid import uuid4

import pika
import pika.data
import pika.exceptions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.conf import settings_problems
from django_outbox.exceptions import MalformedMessage, UnsendableMessage
from django_outbox.messages import Message
from django_outbox.wire.amqp import (
    HEADERS_BYTES,
    from_amqp,
    header_problem,
    headers_problem,
    is_reserved,
    to_amqp,
)
from django_outbox.wire.amqp_encoding import encoded_properties
from tests.support.strategies import HEADER_VALUES, messages

MESSAGE = Message(id=uuid4(), topic="invoice.issued", body="{}", source="/billing")
ANY_VALUE = st.one_of(
    HEADER_VALUES,
    st.text(),
    st.floats(),
    st.integers(),
    st.binary(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.decimals(allow_nan=False),
)


def pikas(message):
    """The message's properties as pika encodes them."""
    return b"".join(pika.BasicProperties(**asdict(to_amqp(message))).encode())


def decoded(message):
    """The message's properties as a consumer's pika reads them."""
    return pika.BasicProperties().decode(encoded_properties(message))


@given(messages())
def test_our_bytes_are_the_ones_pika_makes(message):
    try:
        expected = pikas(message)
    except pika.exceptions.ShortStringTooLong:
        with pytest.raises(UnsendableMessage):
            encoded_properties(message)
    else:
        assert encoded_properties(message) == expected


@given(messages())
def test_a_message_comes_back_as_it_was(message):
    assert from_amqp(decoded(message), message.body.encode()) == message


def test_the_properties_of_a_message():
    message = replace(MESSAGE, correlation_id="c-1", headers={"tenant": "acme", "n": 5})
    properties = decoded(message)
    assert properties.message_id == str(message.id)
    assert properties.type == "invoice.issued"
    assert properties.content_type == "application/json"
    assert properties.delivery_mode == 2
    assert properties.correlation_id == "c-1"
    assert properties.app_id == "/billing"
    assert properties.headers["ce-id"] == str(message.id)
    assert properties.headers["ce-specversion"] == "1.0"
    assert (properties.headers["tenant"], properties.headers["n"]) == ("acme", 5)


@given(st.text(), ANY_VALUE)
def test_a_header_that_is_let_through_survives_pika_unchanged(name, value):
    if header_problem(name, value) is not None:
        return
    pieces = []
    pika.data.encode_table(pieces, {name: value})
    table, _ = pika.data.decode_table(b"".join(pieces), 0)
    assert table == {name: value}
    assert isinstance(table[name], bool) == isinstance(value, bool)


@given(st.text(max_size=300), ANY_VALUE)
def test_a_header_that_pika_cannot_encode_is_refused(name, value):
    try:
        pika.data.encode_table([], {name: value})
    except Exception:
        assert header_problem(name, value) is not None


@given(st.text(), ANY_VALUE)
def test_why_a_header_is_refused_never_shows_its_value(name, value):
    problem = header_problem(name, value)
    if problem is not None and isinstance(value, (str, bytes)) and len(value) > 12:
        assert str(value) not in problem


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("", "x", "an empty name"),
        (7, "x", "a name of type int"),
        ("é" * 128, "x", "256 bytes"),
        ("a\0b", "x", "NUL"),
        ("\ud800", "x", "surrogate"),
        ("ce-id", "x", "belongs to the wire format"),
        ("CE-ID", "x", "belongs to the wire format"),
        ("ce_type", "x", "belongs to the wire format"),
        ("cloudEvents:type", "x", "belongs to the wire format"),
        ("cloudEvents_type", "x", "belongs to the wire format"),
        ("x-death", "x", "belongs to the wire format or to the broker"),
        ("x-delivery-count", 1, "belongs to the wire format or to the broker"),
        ("CC", "x", "belongs to the wire format or to the broker"),
        ("n", 2**63, "64 bits"),
        ("n", -(2**63) - 1, "64 bits"),
        ("n", 1.5, "float"),
        ("n", b"x", "bytes"),
        ("n", ["x"], "list"),
        ("n", "a\0b", "NUL"),
        ("n", "\udfff", "surrogate"),
        ("n", "x" * (HEADERS_BYTES + 1), "longer than"),
    ],
)
def test_why_a_header_cannot_travel(name, value, expected):
    assert expected in header_problem(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tenant", "acme"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-tenant", "acme"),
        ("é" * 127, ""),
        ("n", 2**63 - 1),
        ("n", -(2**63)),
        ("n", True),
        ("n", None),
        ("cc", "lower case is nobody's"),
    ],
)
def test_what_travels(name, value):
    assert header_problem(name, value) is None


def test_headers_that_are_too_large_together_are_refused_although_each_could_travel():
    headers = {f"h{number}": "x" * 8_000 for number in range(8)}
    assert headers_problem(headers) is None
    assert "together take" in headers_problem({**headers, "one-more": "x" * 8_000})


def test_a_problem_among_several_headers_names_the_one():
    assert headers_problem({"good": 1, "bad": 1.5}).startswith("'bad' is a float")


def test_the_largest_message_that_is_let_through_fits_the_smallest_usual_frame():
    own = {f"h{number}": "x" * 8_170 for number in range(8)}
    assert headers_problem(own) is None
    widest = replace(
        MESSAGE,
        topic="é" * 127,
        headers=own,
        aggregate_type="\U0001f600" * 100,
        aggregate_id="\U0001f600" * 255,
        sequence=-(2**63),
        correlation_id="é" * 127,
        causation_id="\U0001f600" * 255,
        source="é" * 127,
    )
    assert len(encoded_properties(widest)) < 128 * 1024 - 20


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"topic": "é" * 128}, "topic"),
        ({"source": "s" * 256}, "source"),
        ({"correlation_id": "c" * 256}, "correlation_id"),
        ({"correlation_id": "\ud800"}, "correlationid"),
        ({"headers": {"n": 1.5}}, "header 'n'"),
        ({"headers": {"n": ["x"]}}, "header 'n'"),
        ({"headers": {"n": 2**63}}, "header 'n'"),
        ({"headers": {"n" * 256: 1}}, "a header name"),
        ({"headers": {"n": "\ud800"}}, "header 'n'"),
    ],
)
def test_what_slipped_past_enqueue_is_refused_by_name_before_anything_is_sent(changes, part):
    with pytest.raises(UnsendableMessage) as caught:
        encoded_properties(replace(MESSAGE, **changes))
    assert caught.value.part == part


def test_a_source_that_no_message_could_carry_is_found_in_the_settings(settings):
    settings.OUTBOX = {"SOURCE": "/" + "é" * 128}
    ((problem, _),) = settings_problems()
    assert "OUTBOX['SOURCE'] is longer than 255 bytes" in problem


def test_a_header_of_the_callers_never_replaces_an_attribute():
    forged = replace(MESSAGE, headers={"ce-id": "forged", "ce-foo": "bar"})
    assert decoded(forged).headers["ce-id"] == str(MESSAGE.id)
    assert encoded_properties(forged) == pikas(forged)


# Reading what others write.


def received(body=b'{"a":1}', *, routing_key="", redelivered=False, **properties):
    given = {"message_id": str(MESSAGE.id), "type": "invoice.issued", **properties}
    return from_amqp(
        pika.BasicProperties(**given), body, routing_key=routing_key, redelivered=redelivered
    )


def test_properties_stand_in_for_missing_attributes():
    message = received(correlation_id="c-1", app_id="/other", timestamp=1_700_000_000)
    assert message.id == MESSAGE.id
    assert message.topic == "invoice.issued"
    assert (message.correlation_id, message.source) == ("c-1", "/other")
    assert message.created_at.timestamp() == 1_700_000_000


def test_the_routing_key_stands_in_for_a_missing_topic():
    assert received(type=None, routing_key="invoice.paid").topic == "invoice.paid"


def test_attributes_count_more_than_properties():
    assert received(headers={"ce_type": "invoice.paid"}).topic == "invoice.paid"


def test_the_broker_s_headers_and_tables_are_no_headers_of_the_message():
    message = received(
        headers={
            "x-death": [{"count": 1}],
            "x-first-death-queue": "q",
            "table": {"a": 1},
            "raw": b"\xff",
            "tenant": "acme",
            "n": pika.compat.long(5),
        }
    )
    assert message.headers == {"tenant": "acme", "n": 5}
    assert type(message.headers["n"]) is int


@pytest.mark.parametrize(
    ("headers", "redelivered", "attempt"),
    [
        ({}, False, 1),
        ({}, True, 2),
        ({"x-delivery-count": 4}, True, 5),
        ({"x-delivery-count": "4"}, False, 1),
        (None, False, 1),
    ],
)
def test_which_delivery_it_is(headers, redelivered, attempt):
    assert received(headers=headers, redelivered=redelivered).attempt == attempt


def test_structured_mode_is_read_by_its_content_type():
    body = (
        b'{"specversion":"1.0","id":"01890a5d-ac96-774b-bcce-b302099a8057","type":"a.b","data":[1]}'
    )
    message = received(
        body, content_type="application/cloudevents+json; charset=utf-8", headers={"h": 1}
    )
    assert (message.topic, message.payload, message.headers) == ("a.b", [1], {"h": 1})


@pytest.mark.parametrize(
    ("properties", "body", "part"),
    [
        ({"message_id": None}, b"1", "id"),
        ({"message_id": "x"}, b"1", "id"),
        ({"type": None}, b"1", "type"),
        ({"content_type": "text/plain"}, b"1", "content_type"),
        ({"content_encoding": "gzip"}, b"1", "content_encoding"),
        ({}, b"\xff", "body"),
        ({"content_type": "application/cloudevents+json"}, b"[]", "event"),
        ({"content_type": "application/cloudevents+json"}, b"[", "body"),
        ({"timestamp": 2**62}, b"1", "timestamp"),
        ({"headers": {"ce-id": [1]}}, b"1", "id"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(properties, body, part):
    with pytest.raises(MalformedMessage) as caught:
        received(body, **properties)
    assert caught.value.part == part


@given(st.dictionaries(st.text(max_size=8), ANY_VALUE, max_size=5), st.binary(max_size=30))
def test_whatever_arrives_is_read_or_refused_and_nothing_else(headers, body):
    with suppress(MalformedMessage):
        received(body, headers=headers)


@given(messages())
def test_no_header_of_a_message_is_reserved(message):
    assert not any(is_reserved(name) for name in message.headers)
