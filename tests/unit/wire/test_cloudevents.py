import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.exceptions import MalformedMessage
from django_outbox.messages import Message
from django_outbox.wire.cloudevents import (
    ATTRIBUTES,
    PREFIXES,
    attributes_of,
    is_json,
    message_from,
    message_from_structured,
    parse_structured,
    sequence_text,
    split_headers,
    structured_text,
)
from tests.support.strategies import INTEGERS, messages

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
MESSAGE = Message(
    id=ID,
    topic="invoice.issued",
    body='{"invoice_id":7}',
    headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    schema_version=2,
    aggregate_type="billing.invoice",
    aggregate_id="7",
    sequence=3,
    correlation_id="c-1",
    causation_id="c-0",
    source="/billing",
    created_at=datetime(2026, 12, 1, 10, 0, 0, 123456, tzinfo=UTC),
)
REQUIRED = {"id": str(ID), "type": "invoice.issued"}


def test_the_attributes_of_a_message():
    assert attributes_of(MESSAGE) == {
        "specversion": "1.0",
        "id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "source": "/billing",
        "type": "invoice.issued",
        "schemaversion": "2",
        "dataschema": "urn:django-outbox:schema:invoice.issued:2",
        "time": "2026-12-01T10:00:00.123456Z",
        "subject": "7",
        "partitionkey": "7",
        "aggregatetype": "billing.invoice",
        "sequence": "0000000000000000003",
        "correlationid": "c-1",
        "causationid": "c-0",
    }


def test_what_a_message_lacks_is_not_written():
    bare = Message(id=ID, topic="invoice.issued", body="null", source="/billing")
    assert set(attributes_of(bare)) == {
        "specversion",
        "id",
        "source",
        "type",
        "schemaversion",
        "dataschema",
    }


@given(messages())
def test_every_attribute_name_is_known_and_legal(message):
    assert set(attributes_of(message)) <= set(ATTRIBUTES)
    assert all(name.isalnum() and name.islower() for name in ATTRIBUTES)


@given(messages())
def test_a_message_comes_back_as_it_was(message):
    assert message_from(attributes_of(message), message.body, message.headers) == message


@given(messages(), st.sampled_from(PREFIXES))
def test_a_message_comes_back_under_every_prefix(message, prefix):
    headers = {f"{prefix}{name}": value for name, value in attributes_of(message).items()}
    attributes, others = split_headers({**headers, **message.headers})
    assert message_from(attributes, message.body, others) == message


@given(messages(headers=False))
def test_a_message_comes_back_from_the_structured_form(message):
    read = parse_structured(structured_text(message))
    assert read.payload == message.payload
    assert replace(read, body=message.body) == message


def test_the_structured_form_keeps_the_payload_text_and_the_trace():
    text = structured_text(replace(MESSAGE, body='{"n": 1.0}'))
    assert text.endswith(',"data":{"n": 1.0}}')
    event = json.loads(text)
    assert event["datacontenttype"] == "application/json"
    assert event["traceparent"] == MESSAGE.headers["traceparent"]
    assert message_from_structured(event).headers == MESSAGE.headers


@given(INTEGERS.filter(lambda n: n >= 0), INTEGERS.filter(lambda n: n >= 0))
def test_sequences_compare_as_text_as_they_do_as_numbers(one, other):
    assert (sequence_text(one) < sequence_text(other)) == (one < other)


def test_the_prefix_that_is_written_first_counts():
    attributes, others = split_headers({"ce_type": "b", "ce-type": "a", "cloudEvents:type": "c"})
    assert attributes == {"type": "a"}
    assert others == {}


@pytest.mark.parametrize("name", ["ce-", "ce-Type", "ce-a-b", "CE-type", "centre", "x-ce-id"])
def test_what_only_looks_like_an_attribute_is_an_ordinary_header(name):
    assert split_headers({name: "x"}) == ({}, {name: "x"})


@pytest.mark.parametrize(
    ("name", "value", "attribute", "expected"),
    [
        ("sequence", 12, "sequence", 12),
        ("sequence", b"0000012", "sequence", 12),
        ("sequence", "-0000000000000000012", "sequence", -12),
        ("schemaversion", 3, "schema_version", 3),
        ("subject", b"caf\xc3\xa9", "aggregate_id", "café"),
        ("subject", True, "aggregate_id", "true"),
        ("time", datetime(2026, 1, 2, tzinfo=UTC), "created_at", datetime(2026, 1, 2, tzinfo=UTC)),
        (
            "time",
            "2026-01-02T03:00:00+03:00",
            "created_at",
            datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3))),
        ),
        ("traceparent", "00-a-b-01", "headers", {"traceparent": "00-a-b-01"}),
        ("comexampleextension", "x", "headers", {}),
        ("causationid", None, "causation_id", ""),
    ],
)
def test_values_are_read_in_the_types_that_clients_make_of_them(name, value, attribute, expected):
    assert getattr(message_from({**REQUIRED, name: value}, "1"), attribute) == expected


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"id": None}, "id"),
        ({"id": ""}, "id"),
        ({"id": "secret-17"}, "id"),
        ({"id": "00000000-0000-0000-0000-000000000000"}, "id"),
        ({"type": None}, "type"),
        ({"type": "secret-17" * 50}, "type"),
        ({"subject": "secret-17" * 50}, "subject"),
        ({"subject": ["secret-17"]}, "subject"),
        ({"subject": b"secret-17\xff"}, "subject"),
        ({"subject": "secret-17\0"}, "subject"),
        ({"aggregatetype": "secret-17" * 20}, "aggregatetype"),
        ({"sequence": "secret-17"}, "sequence"),
        ({"sequence": "9999999999999999999"}, "sequence"),
        ({"sequence": "١٢"}, "sequence"),
        ({"schemaversion": "secret-17"}, "schemaversion"),
        ({"schemaversion": "0"}, "schemaversion"),
        ({"schemaversion": "40000"}, "schemaversion"),
        ({"time": "secret-17"}, "time"),
        ({"time": "2026-01-02T03:00:00"}, "time"),
        ({"specversion": "2.0"}, "specversion"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name_and_without_its_value(changes, part):
    with pytest.raises(MalformedMessage) as caught:
        message_from({**REQUIRED, **changes}, "1")
    assert caught.value.part == part
    assert "secret-17" not in str(caught.value)


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ([], "event"),
        ("text", "event"),
        ({**REQUIRED}, "data"),
        ({**REQUIRED, "data": 1, "datacontenttype": "text/xml"}, "datacontenttype"),
        ({**REQUIRED, "data_base64": "%%%"}, "data_base64"),
        ({**REQUIRED, "data_base64": "/w=="}, "data_base64"),
        ({**REQUIRED, "data_base64": 7}, "data_base64"),
        ({**REQUIRED, "data": float("nan")}, "data"),
    ],
)
def test_a_structured_event_that_cannot_be_understood_is_refused_by_name(event, part):
    with pytest.raises(MalformedMessage) as caught:
        message_from_structured(event)
    assert caught.value.part == part


def test_data_in_base64_is_read():
    assert message_from_structured({**REQUIRED, "data_base64": "eyJhIjoxfQ=="}).payload == {"a": 1}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_text_that_is_no_json_is_refused(text):
    with pytest.raises(MalformedMessage, match="body"):
        parse_structured(text)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (None, True),
        ("", True),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.billing+json", True),
        ("text/plain", False),
        ("application/x-python-serialize", False),
        (7, False),
    ],
)
def test_which_content_types_are_json(content_type, expected):
    assert is_json(content_type) is expected
