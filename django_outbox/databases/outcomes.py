"""What a claim and a settle write into the table, as plain values for every vendor. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never
from uuid import UUID, uuid4

from django_outbox.batches import Dead, Published, Released, Retry, Verdict

#: Characters of ``leased_by`` and of ``last_error`` that are kept.
LEASED_BY_LENGTH = 100
LAST_ERROR_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Lease:
    """What a claim writes into the rows it takes."""

    token: UUID
    seconds: float
    leased_by: str

    @classmethod
    def new(cls, duration: timedelta, leased_by: str) -> Lease:
        """A lease with a token of its own."""
        return cls(uuid4(), duration.total_seconds(), leased_by[:LEASED_BY_LENGTH])


@dataclass(slots=True)
class Outcomes:
    """The verdicts of one settle by kind, as each vendor writes them: a statement a kind."""

    published: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    retried: list[tuple[int, float, str]] = field(default_factory=list)
    """Row id, seconds to wait, reason."""
    dead: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, verdicts: Mapping[int, Verdict]) -> Outcomes:
        """Sort the verdicts, in row-id order: rows are locked in one order by everybody."""
        outcomes = cls()
        for row_id in sorted(verdicts):
            match verdicts[row_id]:
                case Published():
                    outcomes.published.append(row_id)
                case Released():
                    outcomes.released.append(row_id)
                case Retry(delay, reason):
                    seconds = max(delay.total_seconds(), 0.0)
                    outcomes.retried.append((row_id, seconds, _storable(reason)))
                case Dead(reason):
                    outcomes.dead.append((row_id, _storable(reason)))
                case _ as never:
                    assert_never(never)
        return outcomes


def _storable(reason: str) -> str:
    """The reason as a text column takes it: bounded, without NUL and lone surrogates."""
    text = reason[:LAST_ERROR_LENGTH].replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode("utf-8")
