"""Personal members from enqueue to handler: sealed where they rest and travel, open where they are used."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest
from django.db import connection, transaction

from django_outbox import Message, enqueue
from django_outbox.consumers.inbox import process_once
from django_outbox.consumers.registry import Consumer
from django_outbox.encryption.exceptions import EncryptionError, KeyDisabled, UnknownKey
from django_outbox.event_types import event_type, upcasts
from django_outbox.event_types.registry import forget_event_type
from django_outbox.event_types.upcasting import forget_upcaster
from django_outbox.exceptions import (
    InvalidPayload,
    InvalidReceivedPayload,
    MalformedMessage,
    UnknownSchemaVersion,
    UnknownTopic,
)
from django_outbox.models import OutboxMessage, ProcessedMessage
from tests.conftest import EVERY_DATABASE

TOPIC = "customer.registered"
RARE = "Zyxwvut-Qrstu"
KEY = "ViH1cIZhaByRskHXdEwbcC/ihLuaMwu7j3wdF3W6uYs="
OTHER = "2026b:primary:o1dJz1bJ4bNq9RkXwzKD8l8Xrme4S8s0mAKK5s0q2Wc="

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {
            "type": "object",
            "properties": {
                "name": {"type": ["string", "null"], "x-gdpr-sensitive": True},
                "vip": {"type": "boolean", "x-gdpr-sensitive": True},
                "visits": {"type": "integer", "x-gdpr-sensitive": True},
                "country": {"type": "string"},
            },
            "required": ["name"],
        },
        "mails": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"to": {"type": "string", "minLength": 3, "x-gdpr-sensitive": True}},
            },
        },
        "token": {"x-gdpr-forbidden": True},
    },
    "required": ["id", "customer"],
}
PAYLOAD = {
    "id": 1,
    "customer": {"name": RARE, "vip": False, "visits": 0, "country": "TR"},
    "mails": [{"to": f"{RARE}@example.com"}, {}, {"to": "other@example.com"}],
}


@pytest.fixture(autouse=True)
def registered(settings):
    keyrings = {**settings.OUTBOX_ENCRYPTION["KEYRINGS"], "default": f"2026a:primary:{KEY}"}
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": keyrings}
    event_type(TOPIC, aggregate_id="/id")(type("CustomerRegistered", (), {"schema": SCHEMA}))
    yield
    for version in (1, 2, 3):
        forget_event_type(TOPIC, version)
        forget_upcaster(TOPIC, version)


def enqueued(payload=PAYLOAD):
    with transaction.atomic():
        return enqueue(TOPIC, payload)


def stored_text():
    column = "payload::text" if connection.vendor == "postgresql" else "payload"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {OutboxMessage._meta.db_table}")
        return cursor.fetchone()[0]


def travelled(row, **changes):
    """The row as a consumer receives it."""
    message = Message(id=row.message_id, topic=row.topic, body=stored_text())
    return replace(message, **changes)


def handled(message, **options):
    """What a handler of this message sees."""
    seen = []
    process_once(Consumer(name="reader", handler=seen.append, **options), message)
    return seen[0]


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_personal_members_are_unreadable_in_the_table_and_readable_in_the_handler(database):
    row = enqueued()
    text = stored_text()
    assert RARE not in text
    assert RARE not in repr(row.payload)
    assert json.loads(text)["customer"]["country"] == "TR"
    assert handled(travelled(row)).payload == PAYLOAD
    assert row.size >= len(text) - 50


@pytest.mark.parametrize("name", [None, "", "0", "a" * 100_000, '{"$jwe": "a.b.c.d.e"}'])
def test_every_value_at_a_sensitive_path_is_sealed_whatever_it_looks_like(database, name):
    row = enqueued({"id": 1, "customer": {"name": name}})
    assert list(row.payload["customer"]["name"]) == ["$jwe"]
    assert handled(travelled(row)).payload["customer"] == {"name": name}


def test_an_absent_member_stays_absent(database):
    row = enqueued({"id": 1, "customer": {"name": "x"}})
    assert "vip" not in row.payload["customer"]


def test_the_same_value_is_sealed_differently_each_time(database):
    first, second = enqueued(), enqueued()
    assert first.payload["customer"]["name"] != second.payload["customer"]["name"]


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({**PAYLOAD, "customer": {"name": 17}}, "/customer/name breaks 'type'"),
        ({**PAYLOAD, "mails": [{"to": "x"}]}, "/mails/0/to breaks 'minLength'"),
        ({**PAYLOAD, "token": RARE}, "/token must not be sent"),
        ({"id": 1}, "breaks 'required'"),
    ],
)
def test_a_payload_that_breaks_its_schema_is_refused_without_its_values(database, payload, place):
    with transaction.atomic():
        with pytest.raises(InvalidPayload) as refused:
            enqueue(TOPIC, payload)
        assert not OutboxMessage.objects.exists(), "and the transaction is intact"
    assert place in str(refused.value)
    assert RARE not in str(refused.value)


def test_an_unregistered_topic_is_refused_where_event_types_are_required(database, outbox_settings):
    outbox_settings(REQUIRE_EVENT_TYPES=True)
    enqueued()
    with transaction.atomic(), pytest.raises(UnknownTopic, match=r"version 1.*events\.py"):
        enqueue("nobody.registered.this", {})


def move(payload, source, target):
    moved = json.loads(json.dumps(payload))
    moved["mails"][target]["to"] = moved["mails"][source]["to"]
    return json.dumps(moved)


def damage(payload):
    damaged = json.loads(json.dumps(payload))
    token = damaged["customer"]["name"]["$jwe"]
    last = "A" if token[-1] != "A" else "Q"
    damaged["customer"]["name"]["$jwe"] = token[:-1] + last
    return json.dumps(damaged)


def clear(payload):
    return json.dumps({**payload, "customer": {**payload["customer"], "name": RARE}})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: {"id": uuid4()}, "another message"),
        (lambda row: {"body": move(row.payload, 0, 2)}, "another place"),
        (lambda row: {"body": damage(row.payload)}, "damaged"),
        (lambda row: {"body": clear(row.payload)}, "/customer/name breaks"),
        (
            lambda row: {"body": json.dumps({**row.payload, "token": RARE})},
            "/token must not be sent",
        ),
        (lambda row: {"body": "{"}, "not JSON"),
    ],
)
def test_a_member_that_was_moved_damaged_or_laid_open_is_set_aside(database, change, reason):
    row = enqueued()
    with pytest.raises(MalformedMessage) as refused:
        handled(travelled(row, **change(row)))
    assert reason in str(refused.value)
    assert RARE not in str(refused.value)
    assert not ProcessedMessage.objects.exists()


def test_a_member_moved_to_another_topic_does_not_open(database):
    row = enqueued()
    event_type("customer.deleted")(type("CustomerDeleted", (), {"schema": SCHEMA}))
    try:
        with pytest.raises(InvalidReceivedPayload):
            handled(travelled(row, topic="customer.deleted"))
    finally:
        forget_event_type("customer.deleted", 1)


def test_a_consumer_may_leave_members_sealed(database):
    row = enqueued()
    assert handled(travelled(row), open=False).payload == row.payload


def test_a_consumer_without_a_keyring_sees_the_wrapper(database, settings):
    row = enqueued()
    message = travelled(row)
    settings.OUTBOX_ENCRYPTION = {}
    assert handled(message).payload == row.payload


def test_enqueue_without_a_keyring_writes_nothing(database, settings):
    settings.OUTBOX_ENCRYPTION = {}
    with transaction.atomic():
        with pytest.raises(EncryptionError, match="KEYRINGS"):
            enqueue(TOPIC, PAYLOAD)
        assert not OutboxMessage.objects.exists()


@pytest.mark.parametrize(
    ("ring", "error"),
    [
        (OTHER, UnknownKey),
        (
            f"{OTHER} 2026a:disabled:{KEY}",
            KeyDisabled,
        ),
    ],
)
def test_a_missing_or_disabled_key_is_an_error_that_a_retry_can_outlive(
    database, settings, ring, error
):
    row = enqueued()
    message = travelled(row)
    before = settings.OUTBOX_ENCRYPTION
    settings.OUTBOX_ENCRYPTION = {**before, "KEYRINGS": {**before["KEYRINGS"], "default": ring}}
    with pytest.raises(error):
        handled(message)
    settings.OUTBOX_ENCRYPTION = before
    assert handled(message).payload == PAYLOAD


def test_an_older_version_is_opened_and_brought_up(database):
    row = enqueued()
    event_type(TOPIC, version=2)(
        type(
            "Second",
            (),
            {"schema": {**SCHEMA, "required": ["id", "customer", "source"]}},
        )
    )
    upcasts(TOPIC, 1)(lambda payload: {**payload, "source": payload["customer"]["country"]})
    message = handled(travelled(row))
    assert message.schema_version == 2
    assert message.payload == {**PAYLOAD, "source": "TR"}


def test_an_upcaster_that_makes_an_invalid_payload_is_found(database):
    row = enqueued()
    event_type(TOPIC, version=2)(type("Second", (), {"schema": {**SCHEMA, "required": ["source"]}}))
    upcasts(TOPIC, 1)(lambda payload: payload)
    with pytest.raises(InvalidReceivedPayload, match=r"version 2: .*required"):
        handled(travelled(row))


def test_a_version_newer_than_any_known_is_set_aside(database):
    row = enqueued()
    with pytest.raises(
        UnknownSchemaVersion, match=r"version 7 of 'customer.registered'.*version 1"
    ):
        handled(travelled(row, schema_version=7))
