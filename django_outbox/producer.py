"""Write events into the outbox, in the transaction of the business change.

Both exist or neither does. Everything that can be refused is refused before anything is sent to the
database, so that the caller's transaction stays usable. One INSERT is all that an event costs: no
second query, no work after commit.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, overload
from uuid import UUID

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.asyncio import async_unsafe

from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.context import current_context
from django_outbox.databases import database_for, outbox_alias
from django_outbox.databases.base import Inserted, NewMessage
from django_outbox.exceptions import DuplicateMessageId, MessageTooLarge, NoRoute, NotInTransaction
from django_outbox.messages import HeaderValue
from django_outbox.models import OutboxMessage, Status
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
from django_outbox.signals import message_enqueued

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
    written = _write([event], on_conflict)
    return written[0] if written else None


def enqueue_many(
    events: Iterable[Event], *, on_conflict: OnConflict = "raise"
) -> list[OutboxMessage]:
    """Write any number of events in the current transaction, one statement per thousand.

    Returns their rows in the order given, which is also the order of their ids. With
    ``on_conflict="ignore"`` events whose message id is already in the outbox are left out of it.
    Raises what ``enqueue`` raises; then none of the events is written.
    """
    return _write(list(events), on_conflict)


def _write(events: Sequence[Event], on_conflict: OnConflict) -> list[OutboxMessage]:
    if on_conflict not in ("raise", "ignore"):
        raise ValueError(f"on_conflict must be 'raise' or 'ignore', not {on_conflict!r}.")
    if not events:
        return []
    alias = outbox_alias()
    _require_transaction(alias, events[0].topic)
    settings = outbox_settings()
    drafts = [_draft(event, settings, alias) for event in events]
    if on_conflict == "raise":
        _refuse_repetition(drafts)
    with _all_or_nothing(alias, events, on_conflict):
        inserted = database_for(alias).insert_messages([draft.row for draft in drafts])
        if on_conflict == "raise" and len(inserted) < len(drafts):
            taken = next(draft.row for draft in drafts if draft.row.message_id not in inserted)
            raise DuplicateMessageId(taken.topic, taken.message_id)
    written = [
        _saved(alias, draft, found)
        for draft in drafts
        # pop: of an id that stands twice, the first event was written.
        if (found := inserted.pop(draft.row.message_id, None)) is not None
    ]
    if written and message_enqueued.has_listeners(OutboxMessage):
        message_enqueued.send_robust(sender=OutboxMessage, messages=written)
    return written


@dataclass(slots=True)
class _Draft:
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
        correlation_id=identifier_of(
            topic, "correlation_id", event.correlation_id or handling.correlation_id
        ),
        causation_id=identifier_of(
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


def _refuse_repetition(drafts: Sequence[_Draft]) -> None:
    seen: set[UUID] = set()
    for draft in drafts:
        if draft.row.message_id in seen:
            raise DuplicateMessageId(draft.row.topic, draft.row.message_id)
        seen.add(draft.row.message_id)


def _all_or_nothing(alias: str, events: Sequence[Event], on_conflict: OnConflict) -> Any:
    """A savepoint where some of the events may turn out to be written already and others not."""
    if on_conflict == "ignore" or len(events) == 1 or all(e.message_id is None for e in events):
        return nullcontext()
    return transaction.atomic(using=alias)


def _require_transaction(alias: str, topic: str) -> None:
    connection = connections[alias]
    if connection.in_atomic_block:
        return
    _require_synchronous_caller()
    # With autocommit off, every statement is in a transaction that the caller commits.
    if connection.get_autocommit():
        raise NotInTransaction(topic, alias, in_on_commit=_runs_commit_hooks(connection))


@async_unsafe(
    "enqueue writes in the transaction of the business change, which is synchronous: call the"
    " function that opens transaction.atomic() through sync_to_async."
)
def _require_synchronous_caller() -> None:
    """Said before "not in a transaction", which a coroutine can never be in."""


def _runs_commit_hooks(connection: BaseDatabaseWrapper) -> bool:
    """Whether the caller is an ``on_commit`` callback of this connection.

    Read off the stack, on the way to an error: Django has a flag for it, but a callback that raised
    leaves it set.
    """
    hooks = getattr(BaseDatabaseWrapper.run_and_clear_commit_hooks, "__code__", None)
    return any(
        frame.f_code is hooks and frame.f_locals.get("self") is connection
        for frame, _ in traceback.walk_stack(None)
    )
