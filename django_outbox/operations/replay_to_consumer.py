"""Send published messages to one consumer alone: a new one, that was not there when they happened.

The rows stay as they are. The messages go straight to the consumer's queue, with their message ids,
confirmed by the broker, those of an aggregate one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import TextField
from django.db.models.functions import Cast

from django_outbox.conf import outbox_settings
from django_outbox.databases.clock import as_utc
from django_outbox.exceptions import ReplayStopped
from django_outbox.messages import Message
from django_outbox.models import OutboxMessageQuerySet
from django_outbox.operations.destinations import destination_of
from django_outbox.operations.selection import (
    CHUNK,
    Progress,
    every_message,
    id_chunks,
    parts_by_size,
)
from django_outbox.publishers.base import Outcome, Publisher

_COLUMNS = (
    "message_id",
    "topic",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "sequence",
    "headers",
    "correlation_id",
    "causation_id",
    "created_at",
)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a replay to one consumer did. No row was changed."""

    sent: int = 0
    not_taken: int = 0
    """Of topics that the consumer does not take."""
    not_published: int = 0
    """Pending, dead or discarded: those get there, or do not, in the ordinary way."""


def replay_to_consumer(
    messages: OutboxMessageQuerySet,
    name: str,
    *,
    queue: str = "",
    chunk: int = CHUNK,
    progress: Progress | None = None,
) -> Sent:
    """Send the published ones of these messages to the consumer ``name``.

    Its queue is the one of ``OUTBOX["TOPOLOGY"]`` that has its name, or the only one whose bindings
    cover its topics, or the one that is given; a task of Celery is reached by the publisher whose
    ``TASKS`` name it. Raises ``NoQueueOfConsumer`` where that is not clear, and ``ReplayStopped`` at the
    first message that is not confirmed. Other consumers of the same queue skip what they have processed.
    """
    sent = seen = not_taken = 0
    most = outbox_settings().batch_bytes
    with destination_of(name, queue) as destination:
        for ids in id_chunks(messages, chunk):
            rows = every_message().published().filter(id__in=ids).order_by("id")
            # No more in memory at a time than a relay's claim takes.
            for part in parts_by_size(rows.values_list("id", "size"), most):
                found = _messages(rows.filter(id__in=part))
                taken = [message for message in found if destination.takes(message.topic)]
                _send(destination.publisher, taken, sent)
                sent, not_taken = sent + len(taken), not_taken + len(found) - len(taken)
            seen += len(ids)
            if progress is not None:
                progress(seen)
    return Sent(sent, not_taken, seen - sent - not_taken)


def _messages(rows: OutboxMessageQuerySet) -> list[Message]:
    source = outbox_settings().source
    # The payload as text: it travels exactly as stored.
    with_body = rows.annotate(body=Cast("payload", TextField()))
    return [
        Message(id=message_id, created_at=as_utc(created_at), source=source, **rest)
        for message_id, created_at, rest in (
            (row.pop("message_id"), row.pop("created_at"), row)
            for row in with_body.values(*_COLUMNS, "body")
        )
    ]


def _send(publisher: Publisher, messages: list[Message], sent_before: int) -> None:
    """Send them all, round by round. Raises ``ReplayStopped`` where one is not confirmed."""
    unsent = {message.id: message for message in messages}
    for round_ in _rounds(messages):
        receipts = publisher.publish(round_)
        for receipt in receipts:
            if receipt.outcome is Outcome.CONFIRMED:
                del unsent[receipt.message_id]
        failed = next((each for each in receipts if each.message_id in unsent), None)
        if failed is not None:
            raise ReplayStopped(
                sent_before + len(messages) - len(unsent),
                failed.message_id,
                failed.reason or failed.outcome.name.lower().replace("_", " "),
                _just_before(unsent.values()),
            )


def _rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """At most one message of an aggregate at a time; the next follows when that is confirmed."""
    rounds: list[list[Message]] = []
    earlier: Counter[tuple[str, str]] = Counter()
    for message in messages:
        aggregate = (message.aggregate_type, message.aggregate_id)
        number = earlier[aggregate]
        if message.is_ordered:
            earlier[aggregate] += 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(message)
    return rounds


def _just_before(messages: Iterable[Message]) -> datetime:
    """A time before any of them was enqueued."""
    first = min(message.created_at for message in messages if message.created_at is not None)
    return first.replace(microsecond=0) - timedelta(seconds=1)
