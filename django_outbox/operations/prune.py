"""Delete what is settled and older than its retention, a little at a time.

Never a pending message. One pruner at a time; rows that somebody holds are passed over, and each
transaction is short, so neither relays nor producers nor consumers wait for it. What was deleted
stays deleted when it is interrupted. Where there is an archive, messages go there first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

from django.db import router
from django.db.models import QuerySet

from django_outbox.conf import outbox_settings
from django_outbox.consumers.inbox import inbox_alias
from django_outbox.consumers.registry import all_consumers
from django_outbox.databases import database_for, outbox_alias
from django_outbox.databases.clock import DatabaseNow, read_clock
from django_outbox.databases.partitions import Partitions, month_of, partitions_of
from django_outbox.models import (
    ExternalCall,
    OutboxMessage,
    ProcessedMessage,
    RelayProcess,
    Status,
    StoredResponse,
)
from django_outbox.operations.archive import ArchiveInUse, configured_archive
from django_outbox.operations.selection import parts_by_size
from django_outbox.signals import tell_pruned

#: Rows a transaction.
CHUNK = 1_000
#: Bytes of payload and headers that an archive is given at a time; one message whatever its size.
ARCHIVE_BYTES = 32 * 1024 * 1024
#: How long a month that is due may be held up by a few rows before the others are deleted one by one.
_HELD_UP = timedelta(days=7)
_STATUSES = {"published": Status.PUBLISHED, "discarded": Status.DISCARDED, "dead": Status.DEAD}
_INBOX = (ProcessedMessage, ExternalCall, StoredResponse)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows were deleted, or with ``dry_run`` would have been."""

    published: int = 0
    discarded: int = 0
    dead: int = 0
    processed: int = 0
    external_calls: int = 0
    responses: int = 0
    relays: int = 0
    partitions: int = 0
    """Whole months of messages that were dropped, where the table is partitioned."""
    others_at_work: bool = False
    """Another pruner was at work on one of the databases, which was left to it."""
    is_complete: bool = True
    """False: time was up before everything due was deleted."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Rows of one kind: those that are due, in the order of the index that finds them."""

    name: str
    due: QuerySet[Any]
    archive: ArchiveInUse | None = None


def prune(*, max_seconds: float | None = None, dry_run: bool = False, chunk: int = CHUNK) -> Pruned:
    """Delete everything that is older than ``OUTBOX["RETENTION"]`` says; begins no chunk after
    ``max_seconds``. Not to be called inside ``atomic()``: it commits chunk by chunk.

    Raises ``ArchiveFailed`` where the archive does not take a batch: what came before it is deleted, the
    batch and what follows are not.
    """
    ends = None if max_seconds is None else monotonic() + max_seconds
    archive = None if dry_run else configured_archive()
    counts: dict[str, int] = {}
    others_at_work, is_complete, partitions = False, True, 0
    try:
        for alias in _aliases():
            with database_for(alias).one_at_a_time("prune") as mine:
                if not mine:
                    others_at_work = True
                    continue
                months = _months(alias)
                if months is not None:
                    partitions += _drop_months(months, archive is not None, dry_run=dry_run)
                for work in _work_on(alias, archive, is_partitioned=months is not None):
                    if dry_run:
                        _count(counts, work, work.due.count())
                    else:
                        is_complete &= _delete(work, chunk, ends, counts)
    finally:
        if not dry_run:
            tell_pruned(counts)
    return Pruned(
        **counts, partitions=partitions, others_at_work=others_at_work, is_complete=is_complete
    )


def _aliases() -> list[str]:
    of_models = {router.db_for_write(model) for model in _INBOX}
    return sorted({outbox_alias(), *of_models, *map(inbox_alias, all_consumers())})


def _months(alias: str) -> Partitions | None:
    return partitions_of(alias, OutboxMessage._meta.db_table) if alias == outbox_alias() else None


def _drop_months(months: Partitions, is_archived: bool, *, dry_run: bool) -> int:
    """Make the next months, and drop those that are done with; returns how many these were."""
    retention = outbox_settings().retention
    # What an archive has to see first is deleted row by row; then the month is empty.
    kept = None if is_archived else {name: getattr(retention, name) for name in _STATUSES}
    names = months.droppable(kept)
    if dry_run:
        return len(names)
    months.make_ahead()
    return sum(months.drop(name, kept) for name in names)


def _work_on(alias: str, archive: ArchiveInUse | None, *, is_partitioned: bool) -> Iterator[_Work]:
    retention = outbox_settings().retention
    if alias == outbox_alias():
        messages = OutboxMessage.objects.using(alias)
        for name, status in _STATUSES.items():
            age: timedelta | None = getattr(retention, name)
            if age is None:
                continue
            # In the order of an index, whatever is due: sorting it anew for each chunk would take longer
            # than all the rest. What was never published has no time, so there the id orders it.
            order = ("published_at",) if status is Status.PUBLISHED else ("published_at", "id")
            settled = messages.filter(status=status).order_by(*order)
            if is_partitioned and status is Status.PUBLISHED:
                # Whole months go at once. Row by row go only those that something holds back.
                settled = settled.filter(
                    created_at__lt=month_of(read_clock(alias) - age - _HELD_UP)
                )
            yield _Work(name, settled.filter(**_older_than(status, age)), archive)
        yield _Work("relays", RelayProcess.objects.using(alias).forgotten().order_by("id"))
    if retention.processed is not None:
        processed = ProcessedMessage.objects.using(alias).older_than(retention.processed)
        yield _Work("processed", processed.order_by("processed_at"))
        calls = ExternalCall.objects.using(alias).older_than(retention.processed)
        yield _Work("external_calls", calls.order_by("updated_at"))
    responses = StoredResponse.objects.using(alias).expired()
    yield _Work("responses", responses.order_by("expires_at"))


def _older_than(status: Status, age: timedelta) -> dict[str, Any]:
    # A message that was given up has no time of its own but the one when it was last due.
    column = "published_at" if status is Status.PUBLISHED else "available_at"
    return {f"{column}__lt": DatabaseNow() - age}


def _delete(work: _Work, chunk: int, ends: float | None, counts: dict[str, int]) -> bool:
    """Delete what is due, chunk by chunk. False: time was up before all of it was gone."""
    while ends is None or monotonic() < ends:
        gone, may_find_more = _delete_chunk(work, chunk)
        _count(counts, work, gone)
        if gone == 0 or not may_find_more:
            return True
    return False


def _count(counts: dict[str, int], work: _Work, rows: int) -> None:
    counts[work.name] = counts.get(work.name, 0) + rows


def _delete_chunk(work: _Work, chunk: int) -> tuple[int, bool]:
    """Delete a chunk of what is due; returns how many rows are gone, and whether there may be more."""
    if work.archive is None:
        gone = _delete_rows(work.due[:chunk])
        return gone, gone == chunk
    # No transaction is open while the archive works: it may be slow. What changes meanwhile is due no
    # more, and stays.
    sizes = list(work.due.values_list("pk", "size")[:chunk])
    ids = next(parts_by_size(sizes, ARCHIVE_BYTES), [])
    archived = work.archive.keep(work.due.filter(pk__in=ids))
    gone = _delete_rows(work.due.filter(pk__in=archived))
    return gone, len(sizes) == chunk or len(ids) < len(sizes)


def _delete_rows(due: QuerySet[Any]) -> int:
    database = database_for(due.db)
    # Ids first, locked in the order of the index that finds them: a DELETE with the condition itself
    # would wait for whoever holds one of the rows, and two of them could wait for each other.
    skip_locked = database.connection.features.has_select_for_update_skip_locked
    locked = due.select_for_update(skip_locked=skip_locked).values_list("pk", flat=True)

    def delete() -> int:
        with database.transaction() as cursor:
            database.walk_indexes(cursor)
            ids = sorted(locked.all())
            if ids:
                # Where somebody listens to every deletion, Django loads the rows to tell them: keys do.
                rows = due.model._base_manager.using(due.db).filter(pk__in=ids)
                rows.only("pk").delete()
        return len(ids)

    return database.retrying(delete)
