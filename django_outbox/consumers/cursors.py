"""Drop what is older than what the aggregate has seen.

The cursor is the highest sequence that a consumer has applied of one aggregate. It moves in the
transaction of the effect and only forwards; its row is locked until that transaction ends, so that
two messages of one aggregate take their turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import or_

from django.db.models import Q, QuerySet

from django_outbox.messages import Message
from django_outbox.models import AggregateCursor

#: Below every sequence: where the cursor of an aggregate begins that was never seen.
_BEGINNING = -(2**63)


def advance(alias: str, consumer: str, message: Message) -> bool:
    """Move the aggregate's cursor up to this message; False where it stands there or further.

    In the caller's transaction. A message without a sequence or without an aggregate always passes.
    """
    if not _is_counted(message):
        return True
    # One statement for an aggregate that is known. For a new one its row is made first, because
    # an INSERT waits for a concurrent one of the same aggregate on every database.
    if _move(alias, consumer, message):
        return True
    _make(alias, [_beginning(consumer, message)])
    return _move(alias, consumer, message)


def advance_all(alias: str, consumer: str, messages: Sequence[Message]) -> list[bool]:
    """``advance`` for each message in order, in a fixed number of statements for all of them.

    Rows are made and locked in one order whatever the order of the messages, so that two batches
    that share aggregates wait for each other instead of deadlocking.
    """
    counted = {_aggregate(message): message for message in messages if _is_counted(message)}
    if not counted:
        return [True] * len(messages)
    _make(alias, [_beginning(consumer, counted[key]) for key in sorted(counted)])
    locked = (
        _cursors(alias, consumer)
        .filter(_any_of(counted))
        .order_by("aggregate_type", "aggregate_id")
        .select_for_update()
    )
    cursors = {(each.aggregate_type, each.aggregate_id): each for each in locked}
    moved: dict[tuple[str, str], AggregateCursor] = {}
    passed: list[bool] = []
    for message in messages:
        is_fresh = True
        if message.sequence is not None and message.is_ordered:
            key = _aggregate(message)
            is_fresh = message.sequence > cursors[key].sequence
            if is_fresh:
                cursors[key].sequence = message.sequence
                moved[key] = cursors[key]
        passed.append(is_fresh)
    _cursors(alias, consumer).bulk_update(moved.values(), ["sequence"])
    return passed


def _is_counted(message: Message) -> bool:
    return message.sequence is not None and message.is_ordered


def _aggregate(message: Message) -> tuple[str, str]:
    return message.aggregate_type, message.aggregate_id


def _cursors(alias: str, consumer: str) -> QuerySet[AggregateCursor]:
    return AggregateCursor.objects.using(alias).filter(consumer=consumer)


def _move(alias: str, consumer: str, message: Message) -> bool:
    kind, identifier = _aggregate(message)
    behind = _cursors(alias, consumer).filter(
        aggregate_type=kind, aggregate_id=identifier, sequence__lt=message.sequence
    )
    return behind.update(sequence=message.sequence) == 1


def _make(alias: str, rows: list[AggregateCursor]) -> None:
    AggregateCursor.objects.using(alias).bulk_create(rows, ignore_conflicts=True)


def _beginning(consumer: str, message: Message) -> AggregateCursor:
    kind, identifier = _aggregate(message)
    return AggregateCursor(
        consumer=consumer, aggregate_type=kind, aggregate_id=identifier, sequence=_BEGINNING
    )


def _any_of(aggregates: dict[tuple[str, str], Message]) -> Q:
    ids_by_type: dict[str, list[str]] = defaultdict(list)
    for kind, identifier in aggregates:
        ids_by_type[kind].append(identifier)
    return reduce(
        or_, (Q(aggregate_type=kind, aggregate_id__in=ids) for kind, ids in ids_by_type.items())
    )
