"""Which messages an operation is about, and the work on them in bounded chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TypeAlias
from uuid import UUID

from django.db.models import Q

from django_outbox.databases import Database, database_for, outbox_alias
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet, Status
from django_outbox.topics import pattern_regex

#: Rows a transaction: short enough that neither relays nor producers wait for it.
CHUNK = 1_000
#: Called after each chunk with the number of messages looked at so far.
Progress: TypeAlias = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Messages chosen by what people know of them. What is not given narrows nothing."""

    statuses: frozenset[Status] = frozenset()
    """Empty: whatever the status."""
    topics: tuple[str, ...] = ()
    """Patterns, as in routes; one of them has to match."""
    aggregate_type: str = ""
    aggregate_id: str = ""
    error: str = ""
    """Contained in ``last_error``, whatever its case."""
    created_after: datetime | None = None
    """At that time or later."""
    created_before: datetime | None = None
    message_ids: tuple[UUID, ...] = ()
    correlation_id: str = ""
    index_tags: tuple[str, ...] = ()
    """Tags of a person's value, from ``event_types.tags``; never the value itself."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for what is no topic pattern."""
        for pattern in self.topics:
            pattern_regex(pattern)

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the status says which messages are meant."""
        return bool(self.conditions())

    def messages(self) -> OutboxMessageQuerySet:
        """The messages, in the database that they are written to."""
        found = every_message().filter(*self.conditions())
        return found.filter(status__in=self.statuses) if self.statuses else found

    def describe(self) -> str:
        """For people: what is chosen. Of a person's value it says only that one was given."""
        return ", ".join(self._parts()) or "all messages"

    def conditions(self) -> list[Q]:
        """What ``messages`` filters by beside the status, to be applied to other querysets."""
        found: list[Q] = []
        if self.topics:
            patterns = [Q(topic__regex=pattern_regex(pattern)) for pattern in self.topics]
            found.append(reduce(or_, patterns))
        if self.error:
            found.append(Q(last_error__icontains=self.error))
        if self.created_after is not None:
            found.append(Q(created_at__gte=self.created_after))
        if self.created_before is not None:
            found.append(Q(created_at__lt=self.created_before))
        if self.message_ids:
            found.append(Q(message_id__in=self.message_ids))
        if self.index_tags:
            found.append(Q(index_tag__in=self.index_tags))
        exact = ("aggregate_type", "aggregate_id", "correlation_id")
        return [*found, *(Q(**{name: value}) for name in exact if (value := getattr(self, name)))]

    def _parts(self) -> Iterator[str]:
        if self.statuses:
            yield " or ".join(sorted(self.statuses))
        if self.topics:
            yield f"topic {' or '.join(self.topics)}"
        if self.aggregate_type or self.aggregate_id:
            yield f"aggregate {self.aggregate_type or '*'}:{self.aggregate_id or '*'}"
        if self.error:
            yield f"error containing {self.error!r}"
        if self.created_after is not None:
            yield f"since {self.created_after:%Y-%m-%d %H:%M:%S %Z}".rstrip()
        if self.created_before is not None:
            yield f"until {self.created_before:%Y-%m-%d %H:%M:%S %Z}".rstrip()
        if self.message_ids:
            yield f"message id {_few([str(each) for each in self.message_ids])}"
        if self.correlation_id:
            yield f"correlation id {self.correlation_id}"
        if self.index_tags:
            yield "of one person"


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


def parts_by_size(sizes: Iterable[tuple[int, int]], most: int) -> Iterator[list[int]]:
    """Row ids, given with the bytes of their messages, in parts of at most ``most`` bytes; at least one
    in each, whatever its size."""
    part: list[int] = []
    total = 0
    for row_id, size in sizes:
        if part and total + size > most:
            yield part
            part, total = [], 0
        part.append(row_id)
        total += size
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of the messages that were looked at."""

    changed: int
    in_flight: int
    others: int


def change_in_chunks(
    messages: OutboxMessageQuerySet,
    change: Callable[[OutboxMessageQuerySet], int],
    *,
    chunk: int,
    progress: Progress | None,
) -> Changed:
    """Apply ``change``, which returns how many rows it changed, to a chunk of rows at a time.

    Each chunk commits on its own: a selection of any size holds no long lock, and what was done stays
    done when it is interrupted. A transaction that the database takes back is run again.
    """
    changed = in_flight = seen = 0
    for ids in id_chunks(messages, chunk):
        rows = every_message().filter(id__in=ids)
        database = database_for(rows.db)

        def work(
            rows: OutboxMessageQuerySet = rows, database: Database = database
        ) -> tuple[int, int]:
            with database.transaction():
                return change(rows), rows.in_flight().count()

        changed_now, in_flight_now = database.retrying(work)
        changed, in_flight, seen = changed + changed_now, in_flight + in_flight_now, seen + len(ids)
        if progress is not None:
            progress(seen)
    return Changed(changed, in_flight, seen - changed - in_flight)


def _few(names: list[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
