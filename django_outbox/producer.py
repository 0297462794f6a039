"""Write events into the outbox, in the transaction of the business change.

Both exist or neither does. Everything that can be refused is refused before anything is sent to the
database, so that the caller's transaction stays usable. One INSERT is all that an event costs: no
second query, no work after commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, overload
from uuid import UUID

from django.db import transaction

from django_outbox.conf import outbox_settings
from django_outbox.databases import database_for
from django_outbox.databases.base import Inserted
from django_outbox.drafts import Draft, Event, make_draft, saved
from django_outbox.exceptions import DuplicateMessageId
from django_outbox.messages import HeaderValue
from django_outbox.models import OutboxMessage
from django_outbox.refusals import Aggregate
from django_outbox.signals import message_enqueued
from django_outbox.transactions import open_transaction

__all__ = ["Event", "enqueue", "enqueue_many"]

OnConflict = Literal["raise", "ignore"]


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
    __traceback_hide__ = True
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
    draft = make_draft(event, outbox_settings(), alias)
    row = draft.row
    found = database_for(alias).insert_messages((row,)).get(row.message_id)
    if found is None:
        if on_conflict == "raise":
            raise DuplicateMessageId(row.topic, row.message_id)
        return None
    message = saved(alias, draft, found)
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
    drafts = [make_draft(event, settings, alias) for event in events]
    # Only where an id was brought along can it be known already.
    if on_conflict == "raise" and any(event.message_id is not None for event in events):
        _refuse_repetition(drafts)
        with transaction.atomic(using=alias):
            inserted = _insert(alias, drafts)
            _refuse_known(drafts, inserted)
    else:
        inserted = _insert(alias, drafts)
    written = [
        saved(alias, draft, found)
        for draft in drafts
        # pop: of an id that stands twice, the first event was written.
        if (found := inserted.pop(draft.row.message_id, None)) is not None
    ]
    _announce(written)
    return written


def _check(on_conflict: OnConflict) -> None:
    if on_conflict not in ("raise", "ignore"):
        raise ValueError(f"on_conflict must be 'raise' or 'ignore', not {on_conflict!r}.")


def _refuse_repetition(drafts: Sequence[Draft]) -> None:
    seen: set[UUID] = set()
    for draft in drafts:
        if draft.row.message_id in seen:
            raise DuplicateMessageId(draft.row.topic, draft.row.message_id)
        seen.add(draft.row.message_id)


def _refuse_known(drafts: Sequence[Draft], inserted: Mapping[UUID, Inserted]) -> None:
    for draft in drafts:
        if draft.row.message_id not in inserted:
            raise DuplicateMessageId(draft.row.topic, draft.row.message_id)


def _insert(alias: str, drafts: Sequence[Draft]) -> dict[UUID, Inserted]:
    return database_for(alias).insert_messages([draft.row for draft in drafts])


def _announce(written: list[OutboxMessage]) -> None:
    # The list of receivers is empty in most projects, and looking at it costs nothing.
    if written and message_enqueued.receivers and message_enqueued.has_listeners(OutboxMessage):
        message_enqueued.send_robust(sender=OutboxMessage, messages=written)
