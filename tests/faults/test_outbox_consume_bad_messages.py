"""Messages that nobody can handle: each ends in the dead-letter queue with a reason, as it came."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pika

from django_outbox.wire.amqp import to_amqp
from tests.support.messages import received
from tests.support.plants import Plant, plant, reason_of
from tests.support.raw_headers import EVERY_TYPE, long, raw_properties, short
from tests.support.workers import Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["plant", "workers"]


def event_headers(**changes: bytes) -> dict[str, bytes]:
    attributes = to_amqp(received()).headers
    headers = {name: b"S" + long(str(value).encode()) for name, value in attributes.items()}
    return {**headers, **{f"ce-{name}": value for name, value in changes.items()}}


def properties(**changes: Any) -> pika.BasicProperties:
    made = to_amqp(received())
    given = {
        "headers": dict(made.headers),
        "message_id": made.message_id,
        "type": made.type,
        "content_type": made.content_type,
        "delivery_mode": 2,
    }
    return pika.BasicProperties(**{**given, **changes})


def without(*names: str) -> dict[str, Any]:
    headers = to_amqp(received()).headers
    return {name: value for name, value in headers.items() if name not in names}


def bad_messages() -> dict[str, tuple[bytes, Any, str]]:
    """What is wrong with it -> body, properties, and the reason it is set aside for."""
    body = b'{"n": 1}'
    nil = str(UUID(int=0))
    return {
        "no JSON": (b'{"n": ', properties(), "body is not JSON"),
        "empty": (b"", properties(), "body is not JSON"),
        "no UTF-8": (b"\xff\xfe{}", properties(), "body is not UTF-8"),
        "endless nesting": (b"[" * 200_000, properties(), "body is not JSON"),
        "10 MB": (
            json.dumps({"x": "y" * 10_000_000}).encode(),
            properties(),
            "body has 10,000,009 bytes; OUTBOX['MAX_MESSAGE_BYTES'] allows 1,048,576",
        ),
        "XML": (body, properties(content_type="text/xml"), "content_type is not JSON"),
        "gzip": (body, properties(content_encoding="gzip"), "content_encoding is not UTF-8"),
        "no id": (body, properties(headers=without("ce-id"), message_id=None), "id is missing"),
        "no UUID": (
            body,
            properties(headers=without("ce-id"), message_id="42"),
            "id is not a UUID",
        ),
        "nil id": (
            body,
            properties(headers={"ce-id": nil, **without("ce-id")}),
            "id is the nil UUID",
        ),
        "unknown topic": (
            body,
            properties(headers=without("ce-type"), type="nobody.cares"),
            "topic is taken by no consumer of this queue",
        ),
        "no version": (
            body,
            raw_properties(event_headers(schemaversion=b"S" + long(b"two"))),
            "schemaversion is not a number from 1 to 32,767",
        ),
        "id is a table": (
            body,
            raw_properties(event_headers(id=b"F" + long(b""))),
            "id is of type dict",
        ),
        "every type": (
            b"no JSON",
            raw_properties({**event_headers(), **EVERY_TYPE}),
            "body is not JSON",
        ),
        "no properties": (body, pika.BasicProperties(), "id is missing"),
    }


def test_each_ends_in_the_dead_letter_queue_with_a_reason_and_the_next_good_one_is_handled(
    database: Any, plant: Plant, workers: Workers
) -> None:
    Balance.objects.create(account="sales")
    consumer = workers.outbox_consume(plant.outbox, "--queue", plant.queue)
    bad = bad_messages()
    sent: dict[bytes, str] = {}
    for number, (what, (body, made, _)) in enumerate(bad.items()):
        plant.send(body, made, "invoice.issued")
        good = received(body=json.dumps({"amount": number}))
        plant.publish(good)
        workers.diary.wait_for("handled", good.id)
        sent[body] = what
    dead = plant.dead_letters(at_least=len(bad))
    assert [reason_of(each) for each, _ in dead] == [reason for _, _, reason in bad.values()]
    assert [body for _, body in dead] == [body for body, _, _ in bad.values()]
    assert consumer.stop() == 0
    assert consumer.text.count("Connected to RabbitMQ") == 1
    assert plant.is_empty()
    assert LedgerEntry.objects.count() == len(bad)


def test_a_good_message_may_have_headers_of_every_type(
    database: Any, plant: Plant, workers: Workers
) -> None:
    Balance.objects.create(account="sales")
    workers.outbox_consume(plant.outbox, "--queue", plant.queue)
    for name, value in EVERY_TYPE.items():
        headers = event_headers()
        message_id = headers["ce-id"][5:].decode()
        plant.send(b'{"amount": 1}', raw_properties({**headers, name: value}))
        workers.diary.wait_for("handled", message_id)
    assert plant.broker.count(plant.dead_letter_queue) == 0


def test_a_copy_has_every_header_as_it_came(database: Any, plant: Plant, workers: Workers) -> None:
    """Also where pika would have rounded it: seen in the bytes that go over the wire."""
    workers.outbox_consume(plant.outbox, "--queue", plant.queue)
    plant.send(b"no JSON", raw_properties({**event_headers(), **EVERY_TYPE}))
    [(properties, _)] = plant.dead_letters(at_least=1)
    entries = dict(properties.entries)
    for name, value in EVERY_TYPE.items():
        written_by_broker = value.replace(b"L", b"l", 1) if value[:1] == b"L" else value
        assert entries[name] == short(name) + written_by_broker


def test_a_message_whose_headers_have_no_room_for_a_reason_is_rejected_as_it_is(
    database: Any, plant: Plant, workers: Workers
) -> None:
    """The header frame is as large as the broker takes, so its copy would be larger."""
    consumer = workers.outbox_consume(plant.outbox, "--queue", plant.queue)
    headers = {"ce-id": str(uuid4()), "ce-type": "invoice.issued"}
    room = 131_072 - 20 - len(b"".join(pika.BasicProperties(headers=headers).encode()))
    headers["x"] = "y" * (room - 7 - 2 * len("xx"))
    plant.send(b"no JSON", pika.BasicProperties(headers=headers))
    plant.wait_for_dead(1)
    [(dead, _)] = plant.dead_letters()
    assert dead.headers["x-death"][0]["reason"] == "rejected"
    consumer.wait_for_line("rejected as is")
    good = received(body='{"amount": 1}')
    Balance.objects.get_or_create(account="sales")
    plant.publish(good)
    workers.diary.wait_for("handled", good.id)
