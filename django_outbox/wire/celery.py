"""A message as a Celery task message (protocol 2), written and read. Pure: Celery is not loaded.

The task gets one argument, the CloudEvent in structured JSON form; the headers hold what Celery
needs, and the same attributes again that an AMQP message has. Format:
https://docs.celeryq.dev/en/stable/internals/protocol.html
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from django_outbox.exceptions import MalformedMessage
from django_outbox.messages import JSON_CONTENT_TYPE, HeaderValue, Message
from django_outbox.wire.amqp import is_reserved, to_amqp
from django_outbox.wire.cloudevents import (
    header_value,
    message_from,
    message_from_structured,
    split_headers,
    structured_text,
)

#: What Celery logs, stores and shows in place of the arguments: never a payload.
ARGS_REPR: Final = "(<CloudEvent>,)"
KWARGS_REPR: Final = "{}"
CONTENT_ENCODING: Final = "utf-8"
#: A caller's header whose name means something to Celery travels under this prefix.
MOVED_PREFIX: Final = "outbox-header-"

_EMBED: Final = '{"callbacks":null,"errbacks":null,"chain":null,"chord":null}'
#: Celery copies every header into attributes of ``task.request``: these are taken, by the protocol
#: or by the attributes and methods of that object.
_CELERYS_NAMES: Final = frozenset(
    {
        "args",
        "argsrepr",
        "as_execution_options",
        "called_directly",
        "callbacks",
        "chain",
        "children",
        "chord",
        "clear",
        "compression",
        "correlation_id",
        "delivery_info",
        "errbacks",
        "eta",
        "expires",
        "get",
        "group",
        "group_index",
        "headers",
        "hostname",
        "id",
        "ignore_result",
        "is_eager",
        "kwargs",
        "kwargsrepr",
        "lang",
        "logfile",
        "loglevel",
        "meth",
        "origin",
        "parent_id",
        "properties",
        "redelivered",
        "replaced_task_nesting",
        "reply_to",
        "retries",
        "root_id",
        "shadow",
        "soft_time_limit",
        "stamped_headers",
        "stamps",
        "task",
        "taskset",
        "time_limit",
        "timelimit",
        "update",
        "utc",
    }
)


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """What is sent: headers, the properties that matter, and the body as JSON text."""

    headers: Mapping[str, Any] = field(repr=False)
    body: str = field(repr=False)
    correlation_id: str
    content_type: str = JSON_CONTENT_TYPE
    content_encoding: str = CONTENT_ENCODING


def to_celery(message: Message, task: str) -> TaskMessage:
    """The message as a call of the task of this name. The task id is the message id."""
    task_id = str(message.id)
    headers: dict[str, Any] = {
        _moved(name): value for name, value in to_amqp(message).headers.items()
    }
    headers |= {
        "lang": "py",
        "task": task,
        "id": task_id,
        "root_id": task_id,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "argsrepr": ARGS_REPR,
        "kwargsrepr": KWARGS_REPR,
        "origin": "django_outbox",
    }
    return TaskMessage(
        headers=headers, body=f"[[{event_text(message)}],{{}},{_EMBED}]", correlation_id=task_id
    )


def event_text(message: Message) -> str:
    """The task's argument as JSON text.

    Kombu turns every object of exactly the members ``__type__`` and ``__value__`` into something
    else, and a worker throws away a message whose ``__type__`` it does not know. A payload that
    holds such an object travels as ``data_base64``, which it leaves alone.
    """
    if '"__type__"' not in message.body:
        return structured_text(message)
    event = json.loads(structured_text(message))
    del event["data"]
    event["data_base64"] = base64.b64encode(message.body.encode()).decode()
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def from_celery(
    argument: object,
    *,
    headers: Mapping[str, Any] | None,
    task_id: str,
    task: str,
    attempt: int = 1,
) -> Message:
    """The message that a task was called with. Raises ``MalformedMessage`` naming the wrong part.

    The message id is the one in the headers, else the event's own, else the task id. An argument
    that is no CloudEvent is taken for the payload alone, and the headers, or else the name of the
    task, say what it is: so a task that others call by ``delay(payload)`` has an inbox too.
    """
    attributes, others = split_headers(headers or {})
    own = _own_headers(others)
    if _is_event(argument):
        found = attributes.get("id") or argument.get("id") or task_id
        return message_from_structured({**argument, "id": found}, own, attempt=attempt)
    return message_from(
        {"id": task_id, "type": task, **attributes}, _payload_text(argument), own, attempt=attempt
    )


def _is_event(argument: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(argument, Mapping) and "specversion" in argument and "type" in argument


def _payload_text(payload: object) -> str:
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise MalformedMessage("argument", "is not JSON") from None


def _moved(name: str) -> str:
    return f"{MOVED_PREFIX}{name}" if name in _CELERYS_NAMES else name


def _own_headers(others: Mapping[str, object]) -> dict[str, HeaderValue]:
    own: dict[str, HeaderValue] = {}
    for name, value in others.items():
        if name in _CELERYS_NAMES or is_reserved(name):
            continue
        try:
            own[name.removeprefix(MOVED_PREFIX)] = header_value(value)
        except TypeError:
            continue  # tables, arrays and raw bytes are no header of ours
    return own
