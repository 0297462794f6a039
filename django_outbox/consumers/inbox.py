"""The inbox: process_once() is what every transport calls.

At-least-once delivery plus this is an effect exactly once: the message id is recorded in the
transaction of the effect, before the handler runs. Insert first, handle, commit; the transport
acknowledges after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from django.db import router, transaction

from django_outbox.consumers import cursors, seen
from django_outbox.consumers.registry import Consumer, Handler, Mode, consumer_named, is_registered
from django_outbox.consumers.verdicts import Processed
from django_outbox.context import HandlingContext, context
from django_outbox.databases import Database, database_for
from django_outbox.event_types.reading import read_message
from django_outbox.exceptions import MalformedMessage
from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from django_outbox.observers import Consuming, consuming

__all__ = ["Processed", "handle", "handling", "inbox_alias", "inbox_row", "process_once"]

#: The sizes of the columns; a longer value could not be compared with what was stored.
_BOUNDS = {"topic": 255, "aggregate_type": 100, "aggregate_id": 255}


def process_once(
    consumer: Consumer | str, message: Message, handler: Handler | None = None
) -> Processed:
    """Handle the message for this consumer unless that has been done before.

    In one ``atomic()`` on the consumer's database, a savepoint where the caller has a transaction
    open. A concurrent duplicate waits for the first and is then a DUPLICATE; where the first rolled
    back, it runs. What the handler raises is raised on, after the rollback; the caller's own
    transaction stays usable. A transaction that the database itself took back, by a deadlock for
    example, is run again a few times before that is raised; not inside one of the caller.

    ``handler`` stands in for the declared one; with it, any string is a name of a consumer.
    Raises ``UnknownConsumer`` for a name without a handler, ``MalformedMessage`` for a message that
    has no usable identity.
    """
    declared = _resolve(consumer, handler)
    work = Consuming(declared.name, (message,))
    with consuming(work):
        processed = _process(declared, message)
        work.processed = (processed,)
    return processed


def _process(declared: Consumer, message: Message) -> Processed:
    row = inbox_row(message)
    if declared.mode is Mode.SEEN:
        return _process_seen(declared, message, row)
    database = database_for(inbox_alias(declared))
    return database.retrying(lambda: _process_in_transaction(declared, message, row, database))


def _process_in_transaction(
    declared: Consumer, message: Message, row: Mapping[str, object], database: Database
) -> Processed:
    with transaction.atomic(using=database.alias):
        if not database.insert_new(declared.name, (row,)):
            return Processed.DUPLICATE
        if declared.drop_stale and not cursors.advance(database.alias, declared.name, message):
            return Processed.STALE
        handle(declared, message)
    return Processed.HANDLED


def handle(declared: Consumer, message: Message) -> None:
    """Call the handler under the message's context, so that what it enqueues names its cause.

    The payload is held against its event type and opened first; raises what ``read_message`` raises.
    Each call has a payload of its own: what one handler does to it, no other sees.
    """
    message = read_message(message, open_sealed=declared.open).unread()
    with handling(declared.name, message):
        declared.call([message] if declared.batch else message)


def handling(consumer: str, message: Message) -> AbstractContextManager[HandlingContext]:
    """The context of this message: its correlation id goes on, its id is the cause.

    A message that came without a correlation id begins a chain: its own id becomes the chain's.
    """
    message_id = str(message.id)
    return context(
        correlation_id=message.correlation_id or message_id,
        causation_id=message_id,
        consumer=consumer,
    )


def was_processed(declared: Consumer, message: Message) -> bool:
    """Whether the consumer is known to have processed the message. A look, no promise."""
    alias = inbox_alias(declared)
    record = seen.record_for(alias) if declared.mode is Mode.SEEN else seen.TableRecord(alias)
    return record.holds(declared.name, message.id)


def inbox_alias(declared: Consumer) -> str:
    """The alias that the consumer's inbox rows are written to."""
    return declared.database or router.db_for_write(ProcessedMessage)


def inbox_row(message: Message) -> Mapping[str, object]:
    """The columns of the inbox row. Raises ``MalformedMessage`` where they would not fit."""
    if message.id.int == 0:
        raise MalformedMessage("message id", "is the nil UUID, which identifies nothing")
    for name, bound in _BOUNDS.items():
        if len(getattr(message, name)) > bound:
            raise MalformedMessage(name, f"is longer than {bound} characters")
    return {
        "message_id": message.id,
        "topic": message.topic,
        "aggregate_type": message.aggregate_type,
        "aggregate_id": message.aggregate_id,
        "sequence": message.sequence,
    }


def _process_seen(declared: Consumer, message: Message, row: Mapping[str, object]) -> Processed:
    record = seen.record_for(inbox_alias(declared))
    if record.holds(declared.name, message.id):
        return Processed.DUPLICATE
    handle(declared, message)
    record.add(declared.name, row)
    return Processed.HANDLED


def _resolve(consumer: Consumer | str, handler: Handler | None) -> Consumer:
    if isinstance(consumer, Consumer):
        declared = consumer
    elif handler is not None and not is_registered(consumer):
        return Consumer(name=consumer, handler=handler)
    else:
        declared = consumer_named(consumer)
    if handler is None:
        return declared
    return replace(declared, handler=handler)
