"""Batch -> rounds: in one round a strictly ordered aggregate has at most one message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from django_outbox.batches import Claimed
from django_outbox.routing import Ordering

OrderingOf: TypeAlias = Callable[[str], Ordering]
"""Topic -> how its route keeps order."""


def queue_of(claimed: Claimed, ordering_of: OrderingOf) -> tuple[str, str] | None:
    """The aggregate in whose order the message stands; None for one that nothing holds back."""
    message = claimed.message
    if not message.is_ordered or ordering_of(message.topic) is Ordering.NONE:
        return None
    return message.aggregate_type, message.aggregate_id


def rounds(claimed: Sequence[Claimed], ordering_of: OrderingOf) -> list[list[Claimed]]:
    """The messages in the order given, taken apart into rounds that are published one by one.

    A strictly ordered message goes one round after the aggregate's previous one, a relaxed one in the
    same round behind it, and an unordered one at once.
    """
    result: list[list[Claimed]] = []
    latest: dict[tuple[str, str], int] = {}
    for each in claimed:
        number = 0
        queue = queue_of(each, ordering_of)
        if queue is not None:
            previous = latest.get(queue, -1)
            is_strict = ordering_of(each.message.topic) is Ordering.STRICT
            latest[queue] = number = previous + 1 if is_strict else max(previous, 0)
        while len(result) <= number:
            result.append([])
        result[number].append(each)
    return result
