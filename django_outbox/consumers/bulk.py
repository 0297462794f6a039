"""Batches: many messages in one transaction, taken apart where one of them is bad.

The handler gets a list and makes its effect set-based; the inbox rows are one statement. When the
handler raises, everything is rolled back and the halves are tried on their own, down to the message
that is at fault: its neighbours are processed and only it is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

from django.db import transaction

from django_outbox.consumers import cursors
from django_outbox.consumers.failures import failure_of
from django_outbox.consumers.inbox import handling, inbox_alias, inbox_row
from django_outbox.consumers.registry import Consumer
from django_outbox.consumers.verdicts import Failed, Failure, Processed
from django_outbox.context import context
from django_outbox.databases import database_for
from django_outbox.event_types.reading import read_message
from django_outbox.messages import Message
from django_outbox.observers import Consuming, consuming

Happened: TypeAlias = Processed | Failed
#: Told of each message at fault, with what was raised and what that means.
OnFailure: TypeAlias = Callable[[Message, Exception, Failed], object]


def process_batch(
    declared: Consumer, messages: Sequence[Message], on_failure: OnFailure
) -> list[Happened]:
    """Process the messages for a consumer that takes lists; what happened to each, in their order.

    The handler is called with the new ones in the order they came, at most ``declared.batch`` at a
    time. It raises nothing that a handler raises: that is a Failed of the message at fault. Where the
    database is away, every message is a Failed of that kind and none is charged.
    """
    alias = inbox_alias(declared)
    happened: dict[int, Happened] = {}
    readable: list[_Received] = []
    for position, message in enumerate(messages):
        try:
            readable.append(_Received(position, message, declared))
        except Exception as error:
            happened[position] = failed = failure_of(error, alias)
            on_failure(message, error, failed)
    work = _Batch(declared, alias, on_failure, happened)
    size = declared.batch or 1
    for start in range(0, len(readable), size):
        work.process(readable[start : start + size])
    return [happened[position] for position in range(len(messages))]


class _Received:
    """One message with its place in the batch and its inbox row."""

    __slots__ = ("message", "position", "row")

    def __init__(self, position: int, message: Message, declared: Consumer) -> None:
        self.position = position
        self.message = read_message(message, open_sealed=declared.open)
        self.row = inbox_row(message)


class _Batch:
    """The batch at work: what has happened so far, and whether going on makes sense."""

    def __init__(
        self, declared: Consumer, alias: str, on_failure: OnFailure, happened: dict[int, Happened]
    ) -> None:
        self.declared = declared
        self.alias = alias
        self.on_failure = on_failure
        self.happened = happened
        self.outage: Failed | None = None

    def process(self, received: Sequence[_Received]) -> None:
        if self.outage:
            self._all(received, self.outage)
            return
        work = Consuming(self.declared.name, [each.message for each in received])
        try:
            with consuming(work):
                database = database_for(self.alias)
                happened = database.retrying(lambda: self._in_one_transaction(received))
                work.processed = [happened[each.position] for each in received]
            self.happened.update(happened)
        except Exception as error:
            self._after(error, received)

    def _in_one_transaction(self, received: Sequence[_Received]) -> dict[int, Processed]:
        with transaction.atomic(using=self.alias):
            happened: dict[int, Processed] = {}
            new = self._insert(received, happened)
            fresh = self._drop_stale(new, happened)
            if fresh:
                self._handle([each.message for each in fresh])
            happened.update((each.position, Processed.HANDLED) for each in fresh)
        return happened

    def _insert(
        self, received: Sequence[_Received], happened: dict[int, Processed]
    ) -> list[_Received]:
        first: dict[UUID, _Received] = {}
        for each in received:
            first.setdefault(each.message.id, each)
        # In one order everywhere: two batches that share messages wait instead of deadlocking.
        rows = [first[message_id].row for message_id in sorted(first)]
        inserted = database_for(self.alias).insert_new(self.declared.name, rows)
        new = []
        for each in received:
            if each.message.id in inserted and first[each.message.id] is each:
                new.append(each)
            else:
                happened[each.position] = Processed.DUPLICATE
        return new

    def _drop_stale(self, new: list[_Received], happened: dict[int, Processed]) -> list[_Received]:
        if not self.declared.drop_stale or not new:
            return new
        passed = cursors.advance_all(self.alias, self.declared.name, [each.message for each in new])
        happened.update(
            (each.position, Processed.STALE)
            for each, is_fresh in zip(new, passed, strict=True)
            if not is_fresh
        )
        return [each for each, is_fresh in zip(new, passed, strict=True) if is_fresh]

    def _handle(self, messages: list[Message]) -> None:
        name = self.declared.name
        # Several messages have no common cause; the handler names it by handling().
        around = handling(name, messages[0]) if len(messages) == 1 else context(consumer=name)
        with around:
            self.declared.call([message.unread() for message in messages])

    def _after(self, error: Exception, received: Sequence[_Received]) -> None:
        failed = failure_of(error, self.alias)
        if failed.failure is Failure.UNAVAILABLE:
            self.outage = failed
            self._all(received, failed)
        elif len(received) == 1:
            self.happened[received[0].position] = failed
            self.on_failure(received[0].message, error, failed)
        else:
            middle = len(received) // 2
            self.process(received[:middle])
            self.process(received[middle:])

    def _all(self, received: Sequence[_Received], failed: Failed) -> None:
        self.happened.update((each.position, failed) for each in received)
