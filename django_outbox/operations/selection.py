"""Which messages an operation is about, taken in bounded chunks."""

from __future__ import annotations

from collections.abc import Iterator

from django_outbox.databases import outbox_alias
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet

#: Rows a transaction: short enough that neither relays nor producers wait for it.
CHUNK = 1_000


def every_message() -> OutboxMessageQuerySet:
    """All messages, in the database that they are written to: no replica lags behind here."""
    return OutboxMessage.objects.using(outbox_alias())


def id_chunks(messages: OutboxMessageQuerySet, size: int = CHUNK) -> Iterator[list[int]]:
    """The row ids of a selection in id order, at most ``size`` at a time.

    Each chunk is read when it is asked for, from where the last one ended: a selection that shrinks
    while it is worked on loses no row, and no list of all ids is held.
    """
    last = 0
    ordered = messages.order_by("id")
    while True:
        ids = list(ordered.filter(id__gt=last).values_list("id", flat=True)[:size])
        if not ids:
            return
        yield ids
        last = ids[-1]
