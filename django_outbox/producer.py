"""Write events into the outbox, in the transaction of the business change.

Both exist or neither does. Everything that can be refused is refused before anything is sent to the
database, so that the caller's transaction stays usable. One INSERT is all that an event costs: no
second query, no work after commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, overload
from uuid import UUID

from django.db import transaction

from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.context import current_context
from django_outbox.databases import database_for
from django_outbox.databases.base import Inserted, NewMessage
from django_outbox.exceptions import DuplicateMessageId, MessageTooLarge, NoRoute
from django_outbox.messages import HeaderValue
from django_outbox.models import OutboxMessage, Status
from django_outbox.payloads import byte_length, encode
from django_outbox.refusals import (
    Aggregate,
    aggregate_of,
    due_of,
    headers_of,
    message_id_of,
    optional_id_of,
    schema_version_of,
    sequence_of,
    topic_of,
)
from django_outbox.signals import message_enqueued
from django_outbox.transactions import open_transaction

try:
    from uuid import uuid7  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    from uuid_utils.compat import uuid7

OnConflict = Literal["raise", "ignore"]


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


@overload
def enqueue(
    topic: str,
    payload: Any,
    *,
    aggregate: Aggregate = None,
    sequence: int | None = None,
    message_id: UUID | str | None = None,
    headers: Mapping[str, HeaderValue] | None = None,
    correlation_id: str | UUID = "",
    causation_id: str | UUID = "",
    available_at: datetime | None = None,
    delay: timedelta | float | None = None,
    schema_version: int = 1,
    on_conflict: Literal["raise"] = "raise",
) -> OutboxMessage: ...


@overload
def enqueue(
    topic: str,
    payload: Any,
    *,
    aggregate: Aggregate = None,
    sequence: int | None = None,
    message_id: UUID | str | None = None,
    headers: Mapping[str, HeaderValue] | None = None,
    correlation_id: str | UUID = "",
    causation_id: str | UUID = "",
    available_at: datetime | None = None,
    delay: timedelta | float | None = None,
    schema_version: int = 1,
    on_conflict: OnConflict,
) -> OutboxMessage | None: ...


def enqueue(
    topic: str,
    payload: Any,
    *,
    aggregate: Aggregate = None,
    sequence: int | None = None,
    message_id: UUID | str | None = None,
    headers: Mapping[str, HeaderValue] | None = None,
    correlation_id: str | UUID = "",
    causation_id: str | UUID = "",
    available_at: datetime | None = None,
    delay: timedelta | float | None = None,
    schema_version: int = 1,
    on_conflict: OnConflict = "raise",
) -> OutboxMessage | None:
    """Write one event in the current transaction and return its row.

    ``aggregate``: whose event it is, a saved model instance or ``(type, id)``; order is kept within
    it. ``sequence``: the aggregate's version, 0 or more. ``message_id``: the event's identity, a
    UUIDv7 (RFC 9562) unless given. ``headers``: plain values that travel along, ``traceparent`` and
    ``tracestate`` among them. ``correlation_id``, ``causation_id``: taken from the message that is
    being handled, if any, unless given. ``available_at`` (aware) or ``delay`` (timedelta, or
    seconds): not sent before. ``on_conflict="ignore"``: returns None where the message id is already
    in the outbox, instead of raising ``DuplicateMessageId``.

    Raises ``NotInTransaction`` outside of ``atomic()``, and a ``RefusedMessage`` that names the field
    for what could never be delivered. Nothing is written then, and the transaction can go on.
    """
    event = Event(
        topic,
        payload,
        aggregate=aggregate,
        sequence=sequence,
        message_id=message_id,
        headers=headers,
        correlation_id=correlation_id,
        causation_id=causation_id,
        available_at=available_at,
        delay=delay,
        schema_version=schema_version,
    )
    _check(on_conflict)
    alias = open_transaction(topic)
    draft = _draft(event, outbox_settings(), alias)
    row = draft.row
    found = database_for(alias).insert_messages((row,)).get(row.message_id)
    if found is None:
        if on_conflict == "raise":
            raise DuplicateMessageId(row.topic, row.message_id)
        return None
    message = _saved(alias, draft, found)
    _announce([message])
    return message


def enqueue_many(
    events: Iterable[Event], *, on_conflict: OnConflict = "raise"
) -> list[OutboxMessage]:
    """Write any number of events in the current transaction, one statement per thousand.

    Returns their rows in the order given, which is also the order of their ids. With
    ``on_conflict="ignore"`` events whose message id is already in the outbox are left out of it.
    Raises what ``enqueue`` raises; then none of the events is written.
    """
    events = list(events)
    if not events:
        return []
    _check(on_conflict)
    alias = open_transaction(events[0].topic)
    settings = outbox_settings()
    drafts = [_draft(event, settings, alias) for event in events]
    # Only where an id was brought along can it be known already.
    if on_conflict == "raise" and any(event.message_id is not None for event in events):
        _refuse_repetition(drafts)
        with transaction.atomic(using=alias):
            inserted = _insert(alias, drafts)
            _refuse_known(drafts, inserted)
    else:
        inserted = _insert(alias, drafts)
    written = [
        _saved(alias, draft, found)
        for draft in drafts
        # pop: of an id that stands twice, the first event was written.
        if (found := inserted.pop(draft.row.message_id, None)) is not None
    ]
    _announce(written)
    return written


def _check(on_conflict: OnConflict) -> None:
    if on_conflict not in ("raise", "ignore"):
        raise ValueError(f"on_conflict must be 'raise' or 'ignore', not {on_conflict!r}.")


def _refuse_repetition(drafts: Sequence[_Draft]) -> None:
    seen: set[UUID] = set()
    for draft in drafts:
        if draft.row.message_id in seen:
            raise DuplicateMessageId(draft.row.topic, draft.row.message_id)
        seen.add(draft.row.message_id)


def _refuse_known(drafts: Sequence[_Draft], inserted: Mapping[UUID, Inserted]) -> None:
    for draft in drafts:
        if draft.row.message_id not in inserted:
            raise DuplicateMessageId(draft.row.topic, draft.row.message_id)


def _insert(alias: str, drafts: Sequence[_Draft]) -> dict[UUID, Inserted]:
    return database_for(alias).insert_messages([draft.row for draft in drafts])


def _announce(written: list[OutboxMessage]) -> None:
    if written and message_enqueued.has_listeners(OutboxMessage):
        message_enqueued.send_robust(sender=OutboxMessage, messages=written)


class _Draft(NamedTuple):
    """A row to be written, and what its instance shows instead of JSON text."""

    row: NewMessage
    payload: Any
    headers: dict[str, HeaderValue]


def _draft(event: Event, settings: OutboxSettings, alias: str) -> _Draft:
    """The event as a row, or the refusal of the first field that is wrong."""
    topic = topic_of(event.topic)
    if settings.routes.route_for(topic) is None:
        raise NoRoute(
            topic,
            "topic",
            "no pattern of OUTBOX['ROUTES'] matches it, so no publisher would ever send it.",
        )
    schema_version = schema_version_of(topic, event.schema_version)
    message_id = uuid7() if event.message_id is None else message_id_of(topic, event.message_id)
    aggregate_type, aggregate_id = aggregate_of(topic, event.aggregate)
    available_at, delay = due_of(topic, event.available_at, event.delay)
    headers, headers_text = headers_of(topic, event.headers)
    handling = current_context()
    payload = encode(topic, schema_version, event.payload, message_id, alias)
    size = payload.size + byte_length(headers_text)
    if size > settings.max_message_bytes:
        raise MessageTooLarge(topic, size, settings.max_message_bytes)
    row = NewMessage(
        message_id=message_id,
        topic=topic,
        schema_version=schema_version,
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        sequence=sequence_of(topic, event.sequence),
        payload=payload.text,
        headers=headers_text,
        correlation_id=optional_id_of(
            topic, "correlation_id", event.correlation_id or handling.correlation_id
        ),
        causation_id=optional_id_of(
            topic, "causation_id", event.causation_id or handling.causation_id
        ),
        size=size,
        available_at=available_at,
        delay=delay,
    )
    return _Draft(row, payload.stored, headers)


def _saved(alias: str, draft: _Draft, inserted: Inserted) -> OutboxMessage:
    """The row as an instance, as if it had been read back."""
    row = draft.row
    values = (
        inserted.row_id,
        row.message_id,
        row.topic,
        row.schema_version,
        row.aggregate_type,
        row.aggregate_id,
        row.sequence,
        draft.payload,
        draft.headers,
        row.correlation_id,
        row.causation_id,
        row.size,
        Status.PENDING.value,
        inserted.available_at,
        0,
        None,
        None,
        "",
        None,
        "",
        inserted.created_at,
    )
    return OutboxMessage.from_db(alias, _COLUMNS, values)


#: The columns of ``_saved``, in the order of the model's fields.
_COLUMNS = (
    "id",
    "message_id",
    "topic",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "sequence",
    "payload",
    "headers",
    "correlation_id",
    "causation_id",
    "size",
    "status",
    "available_at",
    "attempts",
    "lease_token",
    "lease_expires_at",
    "leased_by",
    "published_at",
    "last_error",
    "created_at",
)
