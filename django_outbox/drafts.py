"""An event as the row it will be, and that row as the instance that the caller gets back.

On the path of every business transaction that enqueues: what is absent from an event costs no call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models.base import ModelState

from django_outbox.conf import OutboxSettings
from django_outbox.context import current_context
from django_outbox.databases.base import Inserted, NewMessage
from django_outbox.exceptions import MessageTooLarge, NoRoute
from django_outbox.messages import HeaderValue
from django_outbox.models import OutboxMessage, Status
from django_outbox.observers import carried_headers, is_observed
from django_outbox.payloads import byte_length, encode
from django_outbox.refusals import (
    Aggregate,
    aggregate_of,
    due_of,
    headers_of,
    identifier_of,
    message_id_of,
    schema_version_of,
    sequence_of,
    topic_of,
)
from django_outbox.routing import Routes

try:
    from uuid import uuid7  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    from uuid_utils.compat import uuid7

_AT_ONCE = timedelta(0)
_PENDING = Status.PENDING.value


@dataclass(frozen=True, slots=True)
class Event:
    """One event for ``enqueue_many``. The fields mean what they mean to ``enqueue``.

    ``repr`` shows neither payload nor ids.
    """

    topic: str
    payload: Any = field(repr=False)
    aggregate: Aggregate = field(default=None, repr=False, kw_only=True)
    sequence: int | None = field(default=None, kw_only=True)
    message_id: UUID | str | None = field(default=None, kw_only=True)
    headers: Mapping[str, HeaderValue] | None = field(default=None, repr=False, kw_only=True)
    correlation_id: str | UUID = field(default="", repr=False, kw_only=True)
    causation_id: str | UUID = field(default="", repr=False, kw_only=True)
    available_at: datetime | None = field(default=None, kw_only=True)
    delay: timedelta | float | None = field(default=None, kw_only=True)
    schema_version: int = field(default=1, kw_only=True)


class Draft(NamedTuple):
    """A row to be written, and what its instance shows instead of JSON text."""

    row: NewMessage
    payload: Any
    headers: dict[str, HeaderValue]


def make_draft(event: Event, settings: OutboxSettings, alias: str) -> Draft:
    """The event as a row. Raises the ``RefusedMessage`` of the first field that is wrong."""
    topic = _routed(event.topic, settings.routes)
    version = event.schema_version
    if type(version) is not int or version != 1:
        version = schema_version_of(topic, version)
    message_id = uuid7() if event.message_id is None else message_id_of(topic, event.message_id)
    aggregate_type, aggregate_id = aggregate_of(topic, event.aggregate)
    sequence = None if event.sequence is None else sequence_of(topic, event.sequence)
    available_at, delay = None, _AT_ONCE
    if event.available_at is not None or event.delay is not None:
        available_at, delay = due_of(topic, event.available_at, event.delay)
    given = event.headers
    if is_observed():
        given = carried_headers(topic, message_id, given)
    headers, headers_text = headers_of(topic, given) if given else ({}, "{}")
    handling = current_context()
    correlation_id = event.correlation_id or handling.correlation_id
    if correlation_id:
        correlation_id = identifier_of(topic, "correlation_id", correlation_id)
    causation_id = event.causation_id or handling.causation_id
    if causation_id:
        causation_id = identifier_of(topic, "causation_id", causation_id)
    text, size, stored, index_tag = encode(
        topic,
        version,
        event.payload,
        message_id,
        alias,
        aggregate_id=aggregate_id,
        sequence=sequence,
    )
    size += byte_length(headers_text)
    if size > settings.max_message_bytes:
        raise MessageTooLarge(topic, size, settings.max_message_bytes)
    row = NewMessage(
        message_id,
        topic,
        version,
        aggregate_type,
        aggregate_id,
        sequence,
        text,
        headers_text,
        correlation_id,
        causation_id,
        size,
        available_at,
        delay,
        is_fresh=event.message_id is None,
        index_tag=index_tag,
    )
    return Draft(row, stored, headers)


def saved(alias: str, draft: Draft, inserted: Inserted) -> OutboxMessage:
    """The row as an instance, as if it had been read back.

    Filled as unpickling fills one, past ``Model.__init__``: half of what the instance costs.
    """
    row = draft.row
    state = ModelState()
    state.adding = False
    state.db = alias
    message = OutboxMessage.__new__(OutboxMessage)
    message.__dict__ = {
        "_state": state,
        "id": inserted.row_id,
        "message_id": row.message_id,
        "topic": row.topic,
        "schema_version": row.schema_version,
        "aggregate_type": row.aggregate_type,
        "aggregate_id": row.aggregate_id,
        "sequence": row.sequence,
        "payload": draft.payload,
        "headers": draft.headers,
        "correlation_id": row.correlation_id,
        "causation_id": row.causation_id,
        "size": row.size,
        "status": _PENDING,
        "available_at": inserted.available_at,
        "attempts": 0,
        "lease_token": None,
        "lease_expires_at": None,
        "leased_by": "",
        "published_at": None,
        "last_error": "",
        "index_tag": row.index_tag,
        "created_at": inserted.created_at,
    }
    return message


def _routed(topic: str, routes: Routes) -> str:
    topic = topic_of(topic)
    if routes.route_for(topic) is None:
        raise NoRoute(
            topic,
            "topic",
            "no pattern of OUTBOX['ROUTES'] matches it, so no publisher would ever send it.",
        )
    return topic
