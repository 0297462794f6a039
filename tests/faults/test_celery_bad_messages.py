"""What no consumer task can handle: each ends in the dead-letter queue, and the next good one is handled."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pika

from django_outbox.databases import Database
from django_outbox.messages import Message
from django_outbox.wire.celery import ARGS_REPR, to_celery
from tests.support.messages import received
from tests.support.plants import Plant, plant, reason_of
from tests.support.raw_headers import EVERY_TYPE, raw_properties, text
from tests.support.workers import Workers, workers
from tests.testapp.models import Balance, LedgerEntry

__all__ = ["plant", "workers"]

BOOK = "ledger.book"
NIL = str(UUID(int=0))
SECRET = "Ada of the payload"


def call(message: Message | None = None, body: bytes | None = None, **changes: Any) -> Any:
    """A task message as (body, properties), with headers or properties changed or (None) left out."""
    made = to_celery(message or received(body=json.dumps({"name": SECRET})), BOOK)
    given = {"content_type": made.content_type, "content_encoding": made.content_encoding}
    given |= {name: changes.pop(name) for name in list(changes) if name in given}
    headers = {**made.headers, **{name.replace("_", "-"): v for name, v in changes.items()}}
    properties = pika.BasicProperties(
        headers={name: value for name, value in headers.items() if value is not None}, **given
    )
    return body if body is not None else made.body.encode(), properties


def event(**changes: Any) -> bytes:
    """The body of a call whose event has other attributes."""
    (argument,), keywords, embed = json.loads(to_celery(received(), BOOK).body)
    return json.dumps([[{**argument, **changes}], keywords, embed]).encode()


def without_task(body: bytes, **properties: Any) -> Any:
    return body, pika.BasicProperties(headers={"id": str(uuid4())}, **properties)


#: Rejected by the worker before it has a task: the broker's own note is all that they have.
REJECTED = ""


def bad_calls() -> dict[str, tuple[Any, str]]:
    """What is wrong -> the message, and the reason that stands in its headers."""
    plain = {"content_type": "application/json", "content_encoding": "utf-8"}
    large = received(body=json.dumps({"x": "y" * 10_000_000}))
    no_event = "task is not called with one argument, the event"
    return {
        "no task, no JSON": (without_task(b'{"name": ', **plain), REJECTED),
        "no task, JSON": (without_task(json.dumps({"name": SECRET}).encode(), **plain), REJECTED),
        "no properties": ((b"", pika.BasicProperties()), REJECTED),
        "no JSON": (call(body=b'[[{"name": '), REJECTED),
        "no UTF-8": (call(body=b"\xff\xfe"), REJECTED),
        "pickle": (call(content_type="application/x-python-serialize"), REJECTED),
        "XML": (call(content_type="text/xml"), REJECTED),
        "no list": (call(body=b'{"name": 1}'), REJECTED),
        "a short list": (call(body=b"[[1], {}]"), REJECTED),
        "no keywords": (call(body=b"[[1], [], null]"), REJECTED),
        "no id": (call(id=None), REJECTED),
        "a time that is none": (call(eta="yesterday"), REJECTED),
        "limits that are none": (call(timelimit="x"), REJECTED),
        "two arguments": (call(body=b"[[{}, {}], {}, {}]"), no_event),
        "no argument": (call(body=b"[[], {}, {}]"), no_event),
        "keywords": (call(body=b'[[{}], {"x": 1}, {}]'), no_event),
        "nil id": (call(ce_id=NIL), "id is the nil UUID"),
        "no UUID": (call(ce_id="42"), "id is not a UUID"),
        "another's task id": (call(body=event(id=None), ce_id=None, id="42"), "id is not a UUID"),
        "no version": (
            call(body=event(schemaversion="two")),
            "schemaversion is not a number from 1 to 32,767",
        ),
        "10 MB": (
            call(large),
            "body has 10,000,008 bytes; OUTBOX['MAX_MESSAGE_BYTES'] allows 1,048,576",
        ),
        "no topic of ours": (call(task="ledger.picky"), "the task does not take its topic"),
    }


def test_each_ends_in_the_dead_letter_queue_and_the_next_good_one_is_handled(
    database: Database, plant: Plant, workers: Workers
) -> None:
    Balance.objects.create(account="sales")
    worker = workers.celery(plant.outbox, plant.broker.url, plant.queue)
    bad = bad_calls()
    found: dict[str, str] = {}
    for what, ((body, properties), reason) in bad.items():
        plant.send_to_queue(body, properties)
        good = received(body=json.dumps({"amount": 1}))
        plant.call(good, BOOK)
        workers.diary.wait_for("handled", good.id)
        [(dead, kept)] = plant.dead_letters(at_least=1)
        found[what] = reason_of(dead)
        if reason:
            assert json.loads(kept)[0] == json.loads(body)[0], what
            assert dead.headers["x-outbox-queue"] == plant.queue
            assert dead.headers["argsrepr"] == ARGS_REPR
        else:
            assert kept == body, what
            assert dead.headers["x-death"][0]["reason"] == "rejected"
    assert found == {what: reason for what, (_, reason) in bad.items()}
    assert worker.is_alive
    assert LedgerEntry.objects.count() == len(bad)
    assert plant.is_empty()


def test_what_no_task_takes_is_rejected_and_its_payload_is_logged_by_nobody_of_ours(
    database: Database, plant: Plant, workers: Workers
) -> None:
    """Celery itself prints the body of a message whose task it does not know."""
    worker = workers.celery(plant.outbox, plant.broker.url, plant.queue)
    plant.send_to_queue(*call(body=b'{"name": "' + SECRET.encode() + b'"}'))
    plant.send_to_queue(*call(body=b'[[{"name": "' + SECRET.encode()))
    plant.send_to_queue(*call(ce_id=NIL))
    plant.wait_for_dead(3)
    assert SECRET not in worker.text
    plant.send_to_queue(*call(task="nobody.knows"))
    plant.wait_for_dead(4)
    assert worker.stop() == 0


def test_a_good_call_may_have_headers_of_every_type(
    database: Database, plant: Plant, workers: Workers
) -> None:
    Balance.objects.create(account="sales")
    workers.celery(plant.outbox, plant.broker.url, plant.queue)
    sent = []
    for name, value in EVERY_TYPE.items():
        if name == "year 146 billion":
            continue  # Celery's own library drops its connection on it, whatever the task
        message = received(body=json.dumps({"amount": 1}))
        made = to_celery(message, BOOK)
        headers = {key: text(each) for key, each in made.headers.items() if isinstance(each, str)}
        properties = raw_properties({**headers, name: value}, encoding="utf-8")
        plant.send_to_queue(made.body.encode(), properties)
        sent.append(message)
    for message in sent:
        workers.diary.wait_for("handled", message.id)
    assert plant.broker.count(plant.dead_letter_queue) == 0
