"""Each field that the producer refuses, and the exception of its own."""

from __future__ import annotations

import datetime
import enum
import uuid

import pytest

from django_outbox import refusals
from django_outbox.exceptions import (
    InvalidHeader,
    InvalidIdentifier,
    InvalidMessageId,
    InvalidSchedule,
    InvalidSchemaVersion,
    InvalidSequence,
    InvalidTopic,
)
from tests.testapp.models import Invoice

NOW = datetime.datetime.now(datetime.UTC)
WEST = datetime.timezone(datetime.timedelta(hours=-12))


class Topic(enum.StrEnum):
    ISSUED = "invoice.issued"


class OldTopic(str, enum.Enum):  # noqa: UP042 - many projects still write it so
    ISSUED = "invoice.issued"


@pytest.mark.parametrize("topic", ["a", "invoice.issued", "größe.geändert", "a-b.c_d.1", "x" * 255])
def test_a_topic_is_words_separated_by_dots(topic):
    assert refusals.topic_of(topic) == topic


@pytest.mark.parametrize("topic", [Topic.ISSUED, OldTopic.ISSUED])
def test_a_topic_from_an_enum_is_stored_as_its_value(topic):
    assert refusals.topic_of(topic) == "invoice.issued"
    assert type(refusals.topic_of(topic)) is str


@pytest.mark.parametrize(
    "topic",
    [
        *("", ".", "a.", ".a", "a..b", "a b", "a\n", "a\0", "a.*", "a.#", "*"),
        *("x" * 256, "é" * 128, "\udc80", 1, None, b"a"),
    ],
)
def test_what_is_no_topic_is_refused(topic):
    with pytest.raises(InvalidTopic) as refused:
        refusals.topic_of(topic)
    assert refused.value.field == "topic"


def test_bytes_are_counted_and_not_characters():
    assert refusals.identifier_of("a", "correlation_id", "é" * 127)
    with pytest.raises(InvalidIdentifier, match="256 bytes"):
        refusals.identifier_of("a", "correlation_id", "é" * 128)


@pytest.mark.parametrize("value", ["a\0", "a\r\nb", "\x85", "\udc80", 1.5, True, None, object()])
def test_an_id_that_cannot_travel_is_refused(value):
    with pytest.raises(InvalidIdentifier) as refused:
        refusals.identifier_of("a", "causation_id", value)
    assert refused.value.field == "causation_id"


def test_ids_may_be_numbers_and_uuids():
    assert refusals.aggregate_of("a", ("invoice", 7)) == ("invoice", "7")
    assert refusals.aggregate_of("a", ("invoice", uuid.UUID(int=7)))[1] == str(uuid.UUID(int=7))
    assert refusals.aggregate_of("a", (OldTopic.ISSUED, "1"))[0] == "invoice.issued"


def test_a_model_instance_is_its_label_and_primary_key():
    assert refusals.aggregate_of("a", Invoice(pk=12)) == ("testapp.invoice", "12")


def test_no_aggregate_is_two_empty_strings():
    assert refusals.aggregate_of("a", None) == ("", "")


@pytest.mark.parametrize(
    "aggregate",
    [
        *(Invoice(), ("", "1"), ("invoice", ""), ("invoice", None), ("x" * 101, "1")),
        *(("a", "b", "c"), "invoice", 7, ("invoice", "x" * 256), ["invoice", "1"], (None, None)),
    ],
)
def test_what_is_no_aggregate_is_refused(aggregate):
    with pytest.raises(InvalidIdentifier) as refused:
        refusals.aggregate_of("a", aggregate)
    assert refused.value.field.startswith("aggregate")


def test_a_message_id_may_be_given_as_text():
    own = uuid.uuid4()
    assert refusals.message_id_of("a", str(own)) == own
    assert refusals.message_id_of("a", own) == own


@pytest.mark.parametrize("message_id", [uuid.UUID(int=0), "0" * 32, "x", "", 7, b"x" * 16])
def test_what_is_no_message_id_is_refused(message_id):
    with pytest.raises(InvalidMessageId) as refused:
        refusals.message_id_of("a", message_id)
    assert refused.value.field == "message_id"


@pytest.mark.parametrize("sequence", [None, 0, 1, 2**63 - 1])
def test_a_sequence_counts_from_0(sequence):
    assert refusals.sequence_of("a", sequence) == sequence


@pytest.mark.parametrize("sequence", [-1, 2**63, 1.0, "1", True])
def test_a_sequence_that_no_reader_can_compare_is_refused(sequence):
    with pytest.raises(InvalidSequence):
        refusals.sequence_of("a", sequence)


@pytest.mark.parametrize("version", [0, -1, 2**15, "1", 1.0, True, None])
def test_a_schema_version_outside_of_its_column_is_refused(version):
    with pytest.raises(InvalidSchemaVersion):
        refusals.schema_version_of("a", version)


def test_a_header_is_copied_with_the_trace_of_the_caller():
    headers = {
        "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        "tracestate": "x=1",
        "n": 1,
    }
    copied, text = refusals.headers_of("a", headers)
    assert copied == headers
    assert copied is not headers
    assert '"traceparent"' in text
    assert refusals.headers_of("a", None) == ({}, "{}")


@pytest.mark.parametrize(
    "headers",
    [
        *({"n": 2**63}, {"n": 1.5}, {"n": float("nan")}, {"n": []}, {"n": b""}, {"n": "a\0"}),
        *({"": 1}, {1: 1}, {"x" * 256: 1}, {"ce-id": "1"}, {"x-death": 1}, {"n": "x" * 70_000}),
        *({f"n{i}": "x" * 10_000 for i in range(7)}, [("n", 1)], "n", {"n": "\udc80"}),
    ],
)
def test_a_header_that_amqp_cannot_carry_is_refused(headers):
    with pytest.raises(InvalidHeader) as refused:
        refusals.headers_of("a", headers)
    assert refused.value.field == "headers"


def test_a_refused_header_is_named_without_its_value():
    with pytest.raises(InvalidHeader, match="'customer'") as refused:
        refusals.headers_of("a", {"customer": ["Jane Doe"]})
    assert "Jane" not in str(refused.value)


def test_a_time_or_a_delay_says_when_a_message_is_due():
    later = NOW + datetime.timedelta(days=1)
    assert refusals.due_of("a", later, None) == (later, datetime.timedelta(0))
    assert refusals.due_of("a", None, 90) == (None, datetime.timedelta(seconds=90))
    assert refusals.due_of("a", None, 0.25) == (None, datetime.timedelta(milliseconds=250))
    assert refusals.due_of("a", None, None) == (None, datetime.timedelta(0))


@pytest.mark.parametrize(
    ("available_at", "delay", "field"),
    [
        (NOW.replace(tzinfo=None), None, "available_at"),
        (datetime.datetime.max.replace(tzinfo=WEST), None, "available_at"),
        (datetime.datetime.min.replace(tzinfo=datetime.UTC), None, "available_at"),
        (NOW + datetime.timedelta(days=40_000), None, "available_at"),
        (NOW.date(), None, "available_at"),
        ("2030-01-01T00:00:00Z", None, "available_at"),
        (None, -1, "delay"),
        (None, datetime.timedelta(seconds=-1), "delay"),
        (None, datetime.timedelta.max, "delay"),
        (None, float("nan"), "delay"),
        (None, float("inf"), "delay"),
        (None, 10**400, "delay"),
        (None, True, "delay"),
        (None, "5", "delay"),
        (NOW, 5, "available_at"),
    ],
)
def test_what_is_no_due_time_is_refused(available_at, delay, field):
    with pytest.raises(InvalidSchedule) as refused:
        refusals.due_of("a", available_at, delay)
    assert refused.value.field == field
