"""Payloads as a source of sealed values, so that ``outbox_keys`` and ``outbox_reencrypt`` reach them.

Counted are all messages that are kept. Sealed anew are those that may still travel, pending and dead;
a published or discarded one keeps its key until it is pruned. A row that a relay holds is left to the
next pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from django_outbox.databases import database_for, outbox_alias
from django_outbox.encryption.conf import INDEX, keyring
from django_outbox.encryption.exceptions import EncryptionError
from django_outbox.encryption.fingerprints import verify_for_writing
from django_outbox.encryption.jwe import WRAPPER, is_wrapper, member_kid
from django_outbox.encryption.rotation import Census, Failure, Step, Task
from django_outbox.event_types.marks import Mark
from django_outbox.event_types.registry import EventType, all_event_types, find_event_type
from django_outbox.event_types.sealing import open_members, seal_members
from django_outbox.event_types.tags import tag_of
from django_outbox.models import OutboxMessage, Status
from django_outbox.payloads import byte_length, json_text

_TRAVELLING = (Status.PENDING, Status.DEAD)
_COLUMNS = ("pk", "topic", "schema_version", "payload", "index_tag")
#: Rows that are read at a time where all are looked at.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class _Row:
    pk: int
    topic: str
    schema_version: int
    payload: Any
    index_tag: str

    @property
    def event_type(self) -> EventType | None:
        return find_event_type(self.topic, self.schema_version)


class PayloadSource:
    """The sealed members of outbox messages, and their index tags."""

    name = "django_outbox.outboxmessage.payload"

    def databases(self) -> Iterable[str]:
        """Where the outbox is."""
        return [outbox_alias()]

    def census(self, using: str) -> Census:
        """Count by the keys that members and tags name. Opens nothing."""
        kids: Counter[str] = Counter()
        index_kids: Counter[str] = Counter()
        keyless = 0
        for row in self._all(using, Q()):
            for kid in _member_kids(row):
                if kid:
                    kids[kid] += 1
                else:
                    keyless += 1
            if row.index_tag:
                index_kids[row.index_tag.partition(":")[0]] += 1
        return Census(dict(kids), dict(index_kids), keyless)

    def remaining(self, task: Task) -> int:
        """Count the messages that may still travel and are not under the primary key."""
        return sum(
            not _is_current(row, task) for row in self._all(task.using, Q(status__in=_TRAVELLING))
        )

    def step(self, task: Task, after: Any) -> Step:
        """Seal the next batch anew."""
        rows = self._rows(task.using).filter(status__in=_TRAVELLING, pk__gt=after or 0)
        batch = [_Row(*values) for values in rows.values_list(*_COLUMNS)[: task.limit]]
        outdated = [row.pk for row in batch if not _is_current(row, task)]
        changed, failures = 0, list[Failure]()
        raced = 0
        if outdated and task.dry_run:
            changed = len(outdated)
        elif outdated:
            changed, raced, failures = self._seal_anew(outdated, task)
        end = batch[-1].pk if len(batch) == task.limit else None
        return Step(end, changed, raced, tuple(failures))

    def _seal_anew(self, pks: list[int], task: Task) -> tuple[int, int, list[Failure]]:
        verify_for_writing(keyring(), task.using)
        database = database_for(task.using)
        # A relay's lease is left alone, and so is a row that somebody writes to right now.
        locking = OutboxMessage.objects.using(task.using).filter(pk__in=pks, lease_token=None)
        if database.connection.features.has_select_for_update_skip_locked:
            locking = locking.select_for_update(skip_locked=True)

        def seal() -> tuple[int, list[Failure]]:
            changed, failures = 0, list[Failure]()
            with database.transaction():
                for message in locking.only("message_id", *_COLUMNS).all():
                    try:
                        self._seal_one(message, task)
                    except EncryptionError as error:
                        failures.append(Failure(message.pk, type(error).__name__))
                    else:
                        changed += 1
            return changed, failures

        changed, failures = database.retrying(seal)
        return changed, len(pks) - changed - len(failures), failures

    def _seal_one(self, message: OutboxMessage, task: Task) -> None:
        event_type = find_event_type(message.topic, message.schema_version)
        if event_type is None:
            return
        payload = message.payload
        before = byte_length(json_text(message.topic, payload))
        where: dict[str, Any] = {
            "marks": event_type.marks,
            "keyring": keyring(),
            "topic": message.topic,
            "message_id": message.message_id,
        }
        open_members(payload, **where)
        if task.index and event_type.index_by:
            message.index_tag = tag_of(event_type, payload, task.using)
        seal_members(payload, **where)
        message.size += byte_length(json_text(message.topic, payload)) - before
        message.save(using=task.using, update_fields=["payload", "index_tag", "size"])

    def _rows(self, using: str) -> Any:
        topics = {each.topic for each in all_event_types() if each.has_personal or each.index_by}
        return OutboxMessage.objects.using(using).filter(topic__in=topics).order_by("pk")

    def _all(self, using: str, which: Q) -> Iterator[_Row]:
        # In chunks by key: no server-side cursor, which PgBouncer would not keep.
        after = 0
        while True:
            rows = self._rows(using).filter(which, pk__gt=after).values_list(*_COLUMNS)[:_CHUNK]
            chunk = [_Row(*values) for values in rows]
            yield from chunk
            if len(chunk) < _CHUNK:
                return
            after = chunk[-1].pk


def _member_kids(row: _Row) -> Iterator[str]:
    """The key that each personal member names; empty for one that is not sealed."""
    event_type = row.event_type
    if event_type is None:
        return
    for member in event_type.marks.members(row.payload, Mark.SENSITIVE):
        try:
            yield member_kid(member.value[WRAPPER]) if is_wrapper(member.value) else ""
        except EncryptionError:
            yield ""


def _is_current(row: _Row, task: Task) -> bool:
    primary = keyring().primary.kid
    if any(kid != primary for kid in _member_kids(row)):
        return False
    event_type = row.event_type
    if not task.index or event_type is None or not event_type.index_by:
        return True
    return row.index_tag.startswith(f"{keyring(INDEX).primary.kid}:") or not row.index_tag
