"""Celery task messages: what is sent, and what a task makes of it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery.app.task import Context
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import loads as kombu_loads

from django_outbox.exceptions import MalformedMessage
from django_outbox.messages import Message
from django_outbox.wire.celery import ARGS_REPR, from_celery, to_celery
from tests.support.strategies import messages

TASK = "ledger.book"


def delivered(message: Message, task: str = TASK) -> tuple[Any, dict[str, Any]]:
    """What a task is called with, and ``request.headers``, after Celery's own reading of both."""
    sent = to_celery(message, task)
    (argument,), kwargs, embed = kombu_loads(sent.body.encode())
    assert kwargs == {}
    assert set(embed) == {"callbacks", "errbacks", "chain", "chord"}
    return argument, Context({**sent.headers, "args": (argument,), "kwargs": {}}).headers


def back(message: Message) -> Message:
    argument, headers = delivered(message)
    return from_celery(
        argument, headers=headers, task_id=str(uuid4()), task=TASK, attempt=message.attempt
    )


@given(messages())
def test_a_message_comes_back_as_it_was_sent(message: Message) -> None:
    found = back(message)
    assert found.payload == message.payload
    for name in (
        "id", "topic", "headers", "schema_version", "aggregate_type", "aggregate_id", "sequence",
        "correlation_id", "causation_id", "created_at", "attempt",
    ):  # fmt: skip
        assert getattr(found, name) == getattr(message, name), name


def made(**attributes: Any) -> Message:
    return Message(**{"id": uuid4(), "topic": "invoice.issued", "body": '{"n": 1}', **attributes})


def test_the_task_id_is_the_message_id_and_the_payload_is_in_no_header() -> None:
    message = made(body='{"name": "Ada"}')
    sent = to_celery(message, TASK)
    assert sent.headers["id"] == sent.headers["root_id"] == str(message.id)
    assert sent.headers["task"] == TASK
    assert sent.headers["argsrepr"] == ARGS_REPR
    assert "Ada" not in repr(sent.headers)
    assert "Ada" not in repr(sent)


def test_headers_have_the_attributes_of_an_event_as_well() -> None:
    message = made(headers={"traceparent": "00-1"}, aggregate_id="7")
    headers = to_celery(message, TASK).headers
    assert headers["ce-id"] == str(message.id)
    assert headers["ce-type"] == "invoice.issued"
    assert headers["ce-subject"] == "7"
    assert headers["traceparent"] == "00-1"


def test_no_header_of_the_caller_reaches_celerys_own() -> None:
    """Celery makes each header an attribute of task.request: ``eta`` would delay the task."""
    celerys = {name for name in vars(Context) if not name.startswith("_")}
    celerys |= {"lang", "task", "id", "argsrepr", "kwargsrepr", "compression"}
    message = made(headers=dict.fromkeys(celerys, "2099-01-01T00:00:00"))
    sent = to_celery(message, TASK)
    ours = {"lang", "task", "id", "root_id", "parent_id", "group", "retries", "argsrepr"}
    ours |= {"kwargsrepr", "origin"}
    assert celerys & set(sent.headers) <= ours
    assert "2099-01-01T00:00:00" not in [sent.headers[name] for name in ours]
    assert back(message).headers == message.headers


@pytest.mark.parametrize(
    "payload",
    [
        {"x": {"__type__": "decimal", "__value__": "1.10"}},
        {"__type__": "nobody knows", "__value__": 1},
        [{"__type__": "datetime", "__value__": "not a time"}],
    ],
)
def test_what_kombu_would_turn_into_something_else_travels_unread(payload: Any) -> None:
    assert back(made(body=json.dumps(payload))).payload == payload


def test_the_id_in_the_headers_counts_before_the_one_in_the_event() -> None:
    argument, _ = delivered(made())
    other = uuid4()
    found = from_celery(argument, headers={"ce-id": str(other)}, task_id="", task=TASK)
    assert found.id == other


def test_the_task_id_stands_in_for_a_missing_id() -> None:
    argument, _ = delivered(made())
    del argument["id"]
    task_id = uuid4()
    assert from_celery(argument, headers=None, task_id=str(task_id), task=TASK).id == task_id


def test_a_task_called_with_a_bare_payload_has_the_task_for_its_topic() -> None:
    task_id = uuid4()
    found = from_celery({"n": 1}, headers=None, task_id=str(task_id), task=TASK)
    assert (found.id, found.topic, found.payload) == (task_id, TASK, {"n": 1})
    headers = {"ce-id": str(UUID(int=7)), "ce-type": "invoice.issued", "ce-subject": "9"}
    found = from_celery([1, 2], headers=headers, task_id=str(task_id), task=TASK)
    assert (found.id, found.topic, found.aggregate_id) == (UUID(int=7), "invoice.issued", "9")


@pytest.mark.parametrize(
    ("argument", "task_id", "part"),
    [
        (object(), str(uuid4()), "argument"),
        ({"n": float("nan")}, str(uuid4()), "argument"),
        ({"n": 1}, "no-uuid", "id"),
        ({"n": 1}, str(UUID(int=0)), "id"),
        ({"specversion": "1.0", "type": "t", "id": str(uuid4())}, "", "data"),
        ({"specversion": "2.0", "type": "t", "id": str(uuid4()), "data": 1}, "", "specversion"),
    ],
)
def test_what_is_no_message_is_refused_and_the_part_is_named(
    argument: Any, task_id: str, part: str
) -> None:
    with pytest.raises(MalformedMessage) as refused:
        from_celery(argument, headers=None, task_id=task_id, task=TASK)
    assert refused.value.part == part


@given(st.text())
def test_no_type_marker_in_a_text_changes_the_payload(text: str) -> None:
    payload = {"text": f'"__type__"{text}"__value__"'}
    assert back(made(body=json.dumps(payload))).payload == payload
