"""What pruning hands over before it deletes: messages on their way out of the table.

An archive is a callable that takes a batch of ``ArchivedMessage`` and returns when they are safe. Where
it raises, nothing of the batch is deleted. A batch may come again, after a crash between the two: an
archive that must not hold a message twice goes by the message id. Personal members stay sealed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol

from django.core.files.base import ContentFile
from django.core.files.storage import InvalidStorageError, Storage, storages
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.utils.module_loading import import_string

from django_outbox.conf import outbox_settings
from django_outbox.databases.clock import as_utc
from django_outbox.exceptions import ArchiveFailed, ImproperlyConfiguredOutbox
from django_outbox.models import OutboxMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMessage:
    """A message as it was when it left the table. ``repr`` shows no payload, no id of an aggregate."""

    message_id: str
    topic: str
    schema_version: int
    aggregate_type: str
    aggregate_id: str = field(repr=False)
    sequence: int | None
    payload: str = field(repr=False)
    """JSON text, exactly as stored."""
    headers: Mapping[str, Any] = field(repr=False)
    correlation_id: str = field(repr=False)
    causation_id: str = field(repr=False)
    status: str
    attempts: int
    last_error: str = field(repr=False)
    created_at: datetime
    available_at: datetime
    published_at: datetime | None
    """None for what was discarded, or died."""


class Archive(Protocol):
    """Keeps messages. Made once for each pruning."""

    def __call__(self, rows: Sequence[ArchivedMessage]) -> object:
        """Keep them, and return when they are safe. Called with none never, outside of transactions."""
        ...


class JsonLinesArchive:
    """One file of JSON lines for each batch, in one of the project's ``STORAGES``.

    ``STORAGE`` is the alias, ``PREFIX`` begins each file's name: ``outbox/2026/12/01/…``. The day is
    that of the first message's enqueueing.
    """

    def __init__(self, *, storage: str = "default", prefix: str = "outbox/") -> None:
        """Raises ``ImproperlyConfiguredOutbox`` for an alias that is not in ``STORAGES``."""
        try:
            self._storage: Storage = storages[storage]
        except InvalidStorageError as error:
            raise ImproperlyConfiguredOutbox(f"OUTBOX['ARCHIVE']['STORAGE']: {error}") from None
        self._prefix = prefix

    def __call__(self, rows: Sequence[ArchivedMessage]) -> None:
        """Write the file. The storage gives it another name where there is one of this name already."""
        first = min(rows, key=lambda row: row.created_at)
        name = f"{self._prefix}{first.created_at:%Y/%m/%d}/{first.created_at:%H%M%S}-{first.message_id}"
        lines = "".join(f"{_line(row)}\n" for row in rows)
        self._storage.save(f"{name}.jsonl", ContentFile(lines.encode()))


class ArchiveInUse:
    """The configured archive, and its name for people."""

    def __init__(self, name: str, keep: Archive) -> None:
        self._name = name
        self._keep = keep

    def keep(self, rows: QuerySet[OutboxMessage]) -> list[int]:
        """Hand the rows over; returns their ids. Raises ``ArchiveFailed``, whatever the archive raises."""
        found = _as_stored(rows)
        ids = [row.pop("id") for row in found]
        try:
            if found and inspect.iscoroutine(returned := self._keep([*map(_archived, found)])):
                returned.close()
                raise TypeError("an async function keeps nothing unless it is awaited")
        except Exception as error:
            # Its text may hold what is in the messages: the type has to do.
            raise ArchiveFailed(self._name, len(found), error) from error
        return ids


def configured_archive() -> ArchiveInUse | None:
    """The archive of ``OUTBOX["ARCHIVE"]``. Raises ``ImproperlyConfiguredOutbox`` where it cannot be made."""
    config = outbox_settings().archive
    if config is None:
        return None
    where = f"OUTBOX['ARCHIVE'] ({config.backend!r})"
    try:
        found = import_string(config.backend)
    except ImportError as error:
        raise ImproperlyConfiguredOutbox(f"{where} cannot be imported: {error}") from error
    if isinstance(found, type):
        options = {str(key).lower(): value for key, value in config.options.items()}
        try:
            found = found(**options)
        except TypeError as error:
            raise ImproperlyConfiguredOutbox(f"{where} cannot be made: {error}") from error
    elif config.options:
        raise ImproperlyConfiguredOutbox(f"{where} is no class: it takes no further options.")
    if not callable(found):
        raise ImproperlyConfiguredOutbox(f"{where} cannot be called with a list of messages.")
    return ArchiveInUse(config.backend, found)


_COLUMNS = (
    "message_id",
    "topic",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "sequence",
    "headers",
    "correlation_id",
    "causation_id",
    "status",
    "attempts",
    "last_error",
    "created_at",
    "available_at",
    "published_at",
)
_TIMES = ("created_at", "available_at", "published_at")


def _as_stored(rows: QuerySet[OutboxMessage]) -> list[dict[str, Any]]:
    with_text = rows.annotate(stored_payload=Cast("payload", TextField())).order_by("id")
    return list(with_text.values("id", *_COLUMNS, "stored_payload"))


def _archived(row: dict[str, Any]) -> ArchivedMessage:
    row["payload"] = row.pop("stored_payload")
    row["message_id"] = str(row["message_id"])
    for name in _TIMES:
        row[name] = None if row[name] is None else as_utc(row[name])
    return ArchivedMessage(**row)


def _line(row: ArchivedMessage) -> str:
    others = asdict(row)
    # A line break in JSON text stands between its parts, never inside of one.
    payload = others.pop("payload").replace("\r", " ").replace("\n", " ")
    head = json.dumps(others, default=datetime.isoformat, ensure_ascii=False)
    return f'{head[:-1]}, "payload": {payload}}}'
