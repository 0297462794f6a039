"""Send published messages again, under the same message id."""

from __future__ import annotations

from dataclasses import dataclass

from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessageQuerySet, Status
from django_outbox.operations.selection import CHUNK, Progress, change_in_chunks


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did. What it left alone is still as it was."""

    replayed: int = 0
    in_flight: int = 0
    """Under a live lease: a relay is publishing it already."""
    not_published: int = 0
    """Pending without a lease, dead or discarded."""


def replay(
    messages: OutboxMessageQuerySet, *, chunk: int = CHUNK, progress: Progress | None = None
) -> Replayed:
    """Make the published ones of these messages pending again, due now, for every consumer.

    They keep their message ids: a consumer that has processed one skips it, as long as its inbox
    remembers. They are sent in their old order, but after what was published meanwhile. Commits
    ``chunk`` rows at a time, as ``requeue`` does.
    """
    done = change_in_chunks(messages, _replay, chunk=chunk, progress=progress)
    return Replayed(done.changed, done.in_flight, done.others)


def _replay(rows: OutboxMessageQuerySet) -> int:
    # The status in the UPDATE's own condition: whatever has become of a row since, only a published
    # one changes.
    return rows.published().update(
        status=Status.PENDING,
        attempts=0,
        available_at=DatabaseNow(),
        published_at=None,
        leased_by="",
    )
