"""Set messages aside for good: dead ones, and pending ones that nobody should receive."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Case, F, Q, TextField, Value, When
from django.db.models.functions import Concat

from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessageQuerySet, Status
from django_outbox.operations.selection import CHUNK, Progress, change_in_chunks

#: What ``last_error`` keeps of a reason.
REASON_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Discarded:
    """What a discard did. What it left alone is still as it was."""

    discarded: int = 0
    in_flight: int = 0
    """Under a live lease: a relay is publishing it."""
    not_discardable: int = 0
    """Published, or discarded before."""


def discard(
    messages: OutboxMessageQuerySet,
    *,
    reason: str = "",
    chunk: int = CHUNK,
    progress: Progress | None = None,
) -> Discarded:
    """Discard the dead and the pending ones of these messages; what they held back goes on.

    The reason is kept, as a line of its own below the last error: write no personal data into it.
    Retention counts from now. Commits ``chunk`` rows at a time, as ``requeue`` does.
    """
    line = f"discarded: {' '.join(reason.split())[:REASON_LENGTH]}" if reason.strip() else ""

    def change(rows: OutboxMessageQuerySet) -> int:
        # Said in the UPDATE's own condition, whatever has become of a row since. A lease that is over
        # goes with it: should its relay still come back, it finds the lease lost.
        return (
            rows.not_leased()
            .filter(status__in=(Status.PENDING, Status.DEAD))
            .update(
                status=Status.DISCARDED,
                available_at=DatabaseNow(),
                last_error=_with(line) if line else F("last_error"),
                lease_token=None,
                lease_expires_at=None,
            )
        )

    done = change_in_chunks(messages, change, chunk=chunk, progress=progress)
    return Discarded(done.changed, done.in_flight, done.others)


def _with(line: str) -> Case:
    return Case(
        When(Q(last_error=""), then=Value(line)),
        default=Concat(F("last_error"), Value(f"\n{line}")),
        output_field=TextField(),
    )
