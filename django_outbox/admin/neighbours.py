"""What a message waits for, and what waits for it: the others of its aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Q

from django_outbox.conf import outbox_settings
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet, Status

#: Pending messages, those due soonest, among which an aggregate's are looked for.
LOOKED_THROUGH = 100_000


@dataclass(frozen=True, slots=True)
class Behind:
    """How many pending messages of the aggregate come after one."""

    number: int
    is_capped: bool
    """More messages are pending than were looked through: at least so many."""


def waiting_behind(message: OutboxMessage, messages: OutboxMessageQuerySet) -> Behind | None:
    """The later pending messages of the same aggregate; None where the message has none."""
    if not message.aggregate_id:
        return None
    # An index holds all pending messages by their due time, but no index holds them by aggregate.
    first = messages.pending().order_by("available_at", "id")[: LOOKED_THROUGH + 1]
    mine = Q(
        aggregate_type=message.aggregate_type, aggregate_id=message.aggregate_id, id__gt=message.pk
    )
    found = first.aggregate(number=Count("pk", filter=mine), looked=Count("pk"))
    return Behind(found["number"], found["looked"] > LOOKED_THROUGH)


def blocked_by(message: OutboxMessage, messages: OutboxMessageQuerySet) -> OutboxMessage | None:
    """The first message of the aggregate that holds this one back; None: order holds it back by none."""
    if not message.aggregate_id or message.status != Status.PENDING:
        return None
    same = messages.filter(
        aggregate_type=message.aggregate_type, aggregate_id=message.aggregate_id
    ).exclude(pk=message.pk)
    tried = same.pending().filter(attempts__gt=0).order_by("id")
    # One that was tried itself waits for earlier ones only, as the claim has it.
    first = tried.filter(id__lt=message.pk).first() if message.attempts else tried.first()
    return first or _dead_one(message, same)


def _dead_one(message: OutboxMessage, same: OutboxMessageQuerySet) -> OutboxMessage | None:
    blocking = outbox_settings().routes.topics_blocked_by_dead()
    if blocking.is_nothing:
        return None
    # Through the index of settled messages by aggregate.
    dead = same.dead().exclude(aggregate_id="").order_by("id")[:100]
    return next((each for each in dead if each.topic in blocking), None)
