"""Give dead messages another life: the one way back from dead to pending."""

from __future__ import annotations

from dataclasses import dataclass

from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessageQuerySet, Status
from django_outbox.operations.selection import CHUNK, Progress, change_in_chunks


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a requeue did. What it left alone is still as it was."""

    requeued: int = 0
    in_flight: int = 0
    """Under a live lease: a relay is publishing it."""
    not_dead: int = 0
    """Pending without a lease, published or discarded."""


def requeue(
    messages: OutboxMessageQuerySet, *, chunk: int = CHUNK, progress: Progress | None = None
) -> Requeued:
    """Make the dead ones of these messages pending again, due now, their attempts forgotten.

    Commits ``chunk`` rows at a time: a selection of any size holds no long lock, and what was done
    stays done when it is interrupted. ``last_error`` is kept, as the reason why it had died.
    """
    done = change_in_chunks(messages, _requeue, chunk=chunk, progress=progress)
    return Requeued(done.changed, done.in_flight, done.others)


def _requeue(rows: OutboxMessageQuerySet) -> int:
    # The status in the UPDATE's own condition: whatever has become of a row since, only a dead one
    # changes.
    return rows.dead().update(
        status=Status.PENDING, attempts=0, available_at=DatabaseNow(), leased_by=""
    )
