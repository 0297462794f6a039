"""One event: the row it becomes, and what is refused with the transaction intact."""

from __future__ import annotations

import datetime
import pickle
import uuid
from decimal import Decimal

import pytest
from django.db import transaction
from django.utils import timezone

from django_outbox import Event, enqueue, enqueue_many
from django_outbox.context import context
from django_outbox.exceptions import (
    DuplicateMessageId,
    InvalidHeader,
    InvalidIdentifier,
    InvalidMessageId,
    InvalidPayload,
    InvalidSchedule,
    InvalidSchemaVersion,
    InvalidSequence,
    InvalidTopic,
    MessageTooLarge,
    NoRoute,
    RefusedMessage,
    UnknownTopic,
)
from django_outbox.models import OutboxMessage
from django_outbox.signals import message_enqueued
from tests.conftest import EVERY_DATABASE
from tests.testapp.models import Invoice

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
NOW = datetime.datetime.now(datetime.UTC)
TRACE = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"}


@everywhere
def test_an_event_is_a_row_with_everything_the_caller_said(database):
    with transaction.atomic():
        invoice = Invoice.objects.create(number="2026-1", version=3)
        own = uuid.uuid4()
        written = enqueue(
            "invoice.issued",
            {"invoice_id": invoice.pk, "total": Decimal("9.90"), "city": "Zürich 😀"},
            aggregate=invoice,
            sequence=invoice.version,
            message_id=own,
            headers={**TRACE, "tenant": "acme", "n": 7, "flag": True, "none": None},
            correlation_id="request-1",
            causation_id="command-1",
            schema_version=2,
        )
    row = OutboxMessage.objects.get()
    assert (row.message_id, row.topic, row.schema_version) == (own, "invoice.issued", 2)
    assert (row.aggregate_type, row.aggregate_id) == ("testapp.invoice", str(invoice.pk))
    assert row.sequence == 3
    assert row.payload == {"invoice_id": invoice.pk, "total": "9.90", "city": "Zürich 😀"}
    assert row.headers == {**TRACE, "tenant": "acme", "n": 7, "flag": True, "none": None}
    assert (row.correlation_id, row.causation_id) == ("request-1", "command-1")
    assert (row.status, row.attempts, row.last_error) == ("pending", 0, "")
    assert row.lease_token is row.lease_expires_at is row.published_at is None
    assert written == row


@everywhere
def test_the_returned_row_is_what_a_fresh_one_would_be(database):
    with transaction.atomic():
        written = enqueue("invoice.issued", {"a": [1, "é"]}, headers={"n": 1}, sequence=5)
    fresh = OutboxMessage.objects.get(pk=written.pk)
    assert {**vars(written), "_state": 0} == {**vars(fresh), "_state": 0}
    assert (written._state.adding, written._state.db) == (False, "default")
    assert not written.get_deferred_fields()


@everywhere
def test_the_returned_row_behaves_like_any_other(database, django_assert_num_queries):
    with transaction.atomic():
        written = enqueue("invoice.issued", {"a": 1})
        again = pickle.loads(pickle.dumps(written))
        assert (again, again.topic, again.payload) == (written, "invoice.issued", {"a": 1})
        written.last_error = "changed"
        with django_assert_num_queries(1):
            written.save(update_fields=["last_error"])
        written.refresh_from_db()
        assert (written.last_error, written.get_status_display()) == ("changed", "pending")


@everywhere
def test_an_event_costs_one_statement(database, django_assert_num_queries):
    with transaction.atomic(), django_assert_num_queries(1):
        message = enqueue("invoice.issued", {"a": 1}, aggregate=("invoice", 1), delay=5)
        assert message.created_at < message.available_at


@everywhere
def test_the_size_is_that_of_payload_and_headers_as_they_are_stored(database):
    payload = {"city": "Zürich", "lines": [{"n": 1, "x": None}, {}], "empty": []}
    with transaction.atomic():
        message = enqueue("a.b", payload, headers={"tenant": "é"})
    table, names = database.quote(OutboxMessage._meta.db_table), ("payload", "headers")
    with database.connection.cursor() as cursor:
        cursor.execute(
            f"SELECT CAST(payload AS char(500)), CAST(headers AS char(500)) FROM {table}"
        )
        stored = dict(zip(names, cursor.fetchone(), strict=True))
    assert message.size == sum(len(text.strip().encode()) for text in stored.values())


@everywhere
def test_the_database_decides_when_a_message_is_due(database):
    with transaction.atomic():
        now = enqueue("a.b", {})
        soon = enqueue("a.b", {}, delay=90)
        later = enqueue("a.b", {}, delay=datetime.timedelta(days=2))
    assert now.available_at == now.created_at
    assert soon.available_at - soon.created_at == datetime.timedelta(seconds=90)
    assert later.available_at - later.created_at == datetime.timedelta(days=2)
    assert list(OutboxMessage.objects.due()) == [now]


@everywhere
def test_a_due_time_may_be_in_any_zone(database):
    zone = datetime.timezone(datetime.timedelta(hours=-11))
    at = datetime.datetime(2031, 5, 4, 3, 2, 1, 123456, tzinfo=zone)
    with transaction.atomic():
        written = enqueue("a.b", {}, available_at=at)
    assert written.available_at == at
    assert OutboxMessage.objects.get().available_at == at


@everywhere
def test_a_time_in_the_past_is_now_and_overtakes_nothing(database):
    past = NOW - datetime.timedelta(days=1)
    with transaction.atomic():
        first = enqueue("a.b", {}, aggregate=("a", 1))
        one = enqueue("a.b", {}, aggregate=("a", 1), available_at=past)
        two, three = enqueue_many([Event("a.b", {}, available_at=past), Event("a.b", {})])
    for message in (one, two, three):
        assert message.available_at == message.created_at
    due = OutboxMessage.objects.due().order_by("available_at", "id")
    assert list(due) == [first, one, two, three]


@everywhere
def test_a_project_without_time_zones_enqueues_as_well(database, settings):
    settings.USE_TZ = False
    at = datetime.datetime(2031, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
    with transaction.atomic():
        written = enqueue("a.b", {}, available_at=at)
        now = enqueue("a.b", {}, delay=60)
    assert written.available_at == OutboxMessage.objects.get(pk=written.pk).available_at
    assert timezone.is_naive(written.available_at)
    assert now.available_at - now.created_at == datetime.timedelta(seconds=60)


def test_the_message_id_is_a_uuid_of_version_7(database):
    with transaction.atomic():
        ids = [enqueue("a.b", {}).message_id for _ in range(3)]
    assert {i.version for i in ids} == {7}
    assert len(set(ids)) == 3
    assert all(type(i) is uuid.UUID for i in ids)
    milliseconds = ids[0].int >> 80
    now = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    assert abs(now - milliseconds) < 60_000


def test_an_event_of_a_handler_names_its_cause(database):
    with transaction.atomic(), context(correlation_id="c-1", causation_id="m-1"):
        caused = enqueue("a.b", {})
        own = enqueue("a.b", {}, correlation_id="mine", causation_id=uuid.UUID(int=5))
    assert (caused.correlation_id, caused.causation_id) == ("c-1", "m-1")
    assert (own.correlation_id, own.causation_id) == ("mine", str(uuid.UUID(int=5)))


def test_headers_that_the_caller_changes_later_stay_as_they_were(database):
    headers = {"tenant": "acme"}
    with transaction.atomic():
        message = enqueue("a.b", {}, headers=headers)
    headers["tenant"] = "other"
    assert message.headers == {"tenant": "acme"}


def test_listeners_are_told_inside_of_the_transaction(database):
    heard = []

    def listen(sender, messages, **kwargs):
        heard.append((sender, messages, database.connection.in_atomic_block))

    message_enqueued.connect(listen)
    try:
        with transaction.atomic():
            message = enqueue("a.b", {})
    finally:
        message_enqueued.disconnect(listen)
    assert heard == [(OutboxMessage, [message], True)]


def test_a_listener_that_raises_disturbs_nobody(database):
    def listen(**kwargs):
        raise RuntimeError("a receiver's own fault")

    message_enqueued.connect(listen)
    try:
        with transaction.atomic():
            enqueue("a.b", {})
    finally:
        message_enqueued.disconnect(listen)
    assert OutboxMessage.objects.count() == 1


REFUSALS = [
    (InvalidTopic, "topic", ("", {}), {}),
    (InvalidTopic, "topic", ("x" * 256, {}), {}),
    (NoRoute, "topic", ("parcel.lost", {}), {}),
    (InvalidPayload, "payload", ("a.b", {"a": float("nan")}), {}),
    (InvalidPayload, "payload", ("a.b", {"a": object()}), {}),
    (InvalidPayload, "payload", ("a.b", {"a": "\0"}), {}),
    (InvalidPayload, "payload", ("a.b", {"a": "\ud800"}), {}),
    (InvalidPayload, "payload", ("a.b", {1: "a"}), {}),
    (MessageTooLarge, "payload", ("a.b", "x" * 2_000), {}),
    (MessageTooLarge, "payload", ("a.b", "x"), {"headers": {"h": "x" * 2_000}}),
    (InvalidHeader, "headers", ("a.b", {}), {"headers": {"ce-id": "1"}}),
    (InvalidIdentifier, "aggregate", ("a.b", {}), {"aggregate": Invoice()}),
    (InvalidIdentifier, "aggregate id", ("a.b", {}), {"aggregate": ("a", "x" * 256)}),
    (InvalidIdentifier, "correlation_id", ("a.b", {}), {"correlation_id": "x" * 256}),
    (InvalidIdentifier, "causation_id", ("a.b", {}), {"causation_id": "\0"}),
    (InvalidMessageId, "message_id", ("a.b", {}), {"message_id": uuid.UUID(int=0)}),
    (InvalidMessageId, "message_id", ("a.b", {}), {"message_id": "x"}),
    (InvalidSequence, "sequence", ("a.b", {}), {"sequence": -1}),
    (InvalidSchemaVersion, "schema_version", ("a.b", {}), {"schema_version": 0}),
    (InvalidSchemaVersion, "schema_version", ("a.b", {}), {"schema_version": 1.0}),
    (InvalidSchemaVersion, "schema_version", ("a.b", {}), {"schema_version": True}),
    (InvalidSchedule, "delay", ("a.b", {}), {"delay": -1}),
    (InvalidSchedule, "available_at", ("a.b", {}), {"available_at": NOW.replace(tzinfo=None)}),
    (
        InvalidSchedule,
        "available_at",
        ("a.b", {}),
        {"available_at": NOW, "delay": 1},
    ),
]


@pytest.mark.parametrize(("error", "field", "arguments", "options"), REFUSALS)
def test_a_refusal_names_the_field_and_asks_the_database_nothing(
    error, field, arguments, options, database, outbox_settings, django_assert_num_queries
):
    outbox_settings(MAX_MESSAGE_BYTES=1_000, ROUTES=[("a.*", {})])
    with transaction.atomic():
        with django_assert_num_queries(0), pytest.raises(error) as refused:
            enqueue(*arguments, **options)
        Invoice.objects.create(number="the transaction goes on")
    assert isinstance(refused.value, RefusedMessage)
    assert refused.value.field == field
    assert field in str(refused.value)
    assert (Invoice.objects.count(), OutboxMessage.objects.count()) == (1, 0)


def test_an_unregistered_topic_is_refused_where_event_types_are_required(
    database, outbox_settings, django_assert_num_queries
):
    outbox_settings(REQUIRE_EVENT_TYPES=True)
    with (
        transaction.atomic(),
        django_assert_num_queries(0),
        pytest.raises(UnknownTopic, match="version 4"),
    ):
        enqueue("nobody.knows", {}, schema_version=4)


@everywhere
def test_the_largest_message_is_taken_and_one_byte_more_is_not(database, outbox_settings):
    outbox_settings(MAX_MESSAGE_BYTES=100)
    with transaction.atomic():
        assert enqueue("a.b", "x" * 96).size == 100  # two quotes, and {} for the headers
        with pytest.raises(MessageTooLarge) as refused:
            enqueue("a.b", "x" * 97)
    assert (refused.value.size, refused.value.limit) == (101, 100)


@everywhere
def test_what_is_not_refused_is_stored_by_every_database(database):
    deepest = {"a": 1}
    for _ in range(29):
        deepest = {"a": deepest}
    payloads = [
        deepest,
        [[]] * 50,
        "",
        None,
        0,
        "\\u0000",
        "\x1f\x7f\x9f",
        "😀" * 100,
        {"": {"": 1}},
    ]
    payloads += [1e300, -0.0, 2**53, "\u2028\ufffe\uffff"]
    with transaction.atomic():
        rows = [
            enqueue("x" * 255, payload, aggregate=("é" * 100, "é" * 127)) for payload in payloads
        ]
    for row, payload in zip(rows, payloads, strict=True):
        stored = OutboxMessage.objects.get(pk=row.pk).payload
        # jsonb writes a large float as the whole number that it is.
        assert (float(stored) if isinstance(payload, float) else stored) == payload


@everywhere
def test_a_repeated_message_id_is_refused_and_the_transaction_goes_on(database):
    own = uuid.uuid4()
    with transaction.atomic():
        enqueue("a.b", {"n": 1}, message_id=own)
    with transaction.atomic():
        with pytest.raises(DuplicateMessageId, match=str(own)):
            enqueue("a.b", {"n": 2}, message_id=own)
        Invoice.objects.create(number="the transaction goes on")
    assert Invoice.objects.count() == 1
    assert OutboxMessage.objects.get().payload == {"n": 1}


@everywhere
def test_a_repeated_message_id_may_be_passed_over(database, django_assert_max_num_queries):
    own = uuid.uuid4()
    with transaction.atomic():
        first = enqueue("a.b", {"n": 1}, message_id=own, on_conflict="ignore")
    with transaction.atomic():
        # MySQL cannot say which id was known in the same statement.
        with django_assert_max_num_queries(2 if database.vendor == "mysql" else 1):
            assert enqueue("a.b", {"n": 2}, message_id=own, on_conflict="ignore") is None
        Invoice.objects.create(number="the transaction goes on")
    assert first is not None
    assert OutboxMessage.objects.get() == first
    assert Invoice.objects.count() == 1


def test_another_way_to_treat_a_conflict_is_an_error(database):
    with transaction.atomic(), pytest.raises(ValueError, match="'replace'"):
        enqueue("a.b", {}, on_conflict="replace")
