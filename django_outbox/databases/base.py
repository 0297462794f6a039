"""What the outbox asks of a database. One subclass a vendor; nothing else knows a vendor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_outbox.batches import Batch, Limits, Settlement, Verdict


@dataclass(frozen=True, slots=True)
class NewMessage:
    """The columns of a row to be written, checked and encoded. ``payload`` and ``headers`` are JSON text."""

    message_id: UUID
    topic: str
    schema_version: int
    aggregate_type: str
    aggregate_id: str
    sequence: int | None
    payload: str
    headers: str
    correlation_id: str
    causation_id: str
    size: int
    available_at: datetime | None = None
    """Due then; None: now, by the database's clock, plus ``delay``."""
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Inserted:
    """What the database filled in for a new row."""

    row_id: int
    available_at: datetime
    created_at: datetime


class Database(ABC):
    """One alias of ``DATABASES``, through the eyes of the outbox.

    Every method uses the calling thread's connection of Django. ``claim``, ``settle`` and ``expire``
    open and commit a transaction of their own and retry what the vendor says may be retried
    (databases/errors.py); none of them may be called inside ``atomic()``, except in tests that wrap
    everything in one (``TestCase``), where they run as savepoints.
    """

    vendor: ClassVar[str]
    supports_notify: ClassVar[bool] = False

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    @abstractmethod
    def insert_messages(self, rows: Sequence[NewMessage]) -> dict[UUID, Inserted]:
        """Write outbox rows in the caller's transaction, one statement per thousand.

        Rows whose message id exists already (or stands twice in ``rows``: the first wins) are left
        out, without an error of the database; the result holds those that were written.
        """

    @abstractmethod
    def claim(self, limits: Limits, leased_by: str) -> Batch | None:
        """Take due rows under a new lease, or None where nothing is due.

        Counts the attempt, passes over what others hold, keeps order within aggregates whatever the
        number of relays, and returns rows sorted by id.
        """

    @abstractmethod
    def settle(
        self, token: UUID, verdicts: Mapping[int, Verdict], *, delete_published: bool = False
    ) -> Settlement:
        """Write verdicts (row id -> verdict) back in one transaction, fenced by the lease's token.

        A row whose lease has another token by now is left as it is and counted as lost.
        """

    @abstractmethod
    def insert_new(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        """Insert ProcessedMessage rows in the caller's transaction; returns the ids that were new.

        ``rows`` map the column names (without consumer, id and processed_at) to values. A concurrent
        insert of the same id is waited for. A conflict raises nothing and breaks no transaction.
        """

    @abstractmethod
    def one_at_a_time(self, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one, in this database, that does the named work; yields whether it is.

        Held until the block ends, across transactions; never waits.
        """

    def backlog_is_due(self, limits: Limits) -> bool:
        """Whether a claim now would find anything; reads only. May err towards True."""
        return self.seconds_until_due(limits) == 0

    @abstractmethod
    def seconds_until_due(self, limits: Limits) -> float | None:
        """Seconds until the next free row is due: 0 when one is, None when none is pending. Reads only."""

    def listener(self) -> WorkListener:
        """A listener that is woken by new rows. Raises ``NotSupportedError`` where there is none."""
        from django.db import NotSupportedError

        raise NotSupportedError(f"{self.vendor} has no LISTEN/NOTIFY: use WAKEUP = 'poll'.")

    @contextmanager
    def fresh_connection(self) -> Iterator[None]:
        """Close this thread's connection afterwards if it broke or is too old."""
        try:
            yield
        finally:
            self.connection.close_if_unusable_or_obsolete()

    def quote(self, name: str) -> str:
        """A table or column name quoted for this database."""
        return self.connection.ops.quote_name(name)


class WorkListener(ABC):
    """Sleeps until rows are written. Owns a connection of its own; not shared between threads."""

    @abstractmethod
    def prepare(self) -> bool:
        """Announce that this relay is about to sleep. False: it cannot be announced now, poll instead.

        After True the caller looks for due rows once more, then calls ``wait`` or ``cancel``.
        """

    @abstractmethod
    def wait(self, seconds: float, wake_fd: int | None = None) -> bool:
        """Sleep until woken, until ``wake_fd`` is readable, or for that long. True: woken by new rows."""

    @abstractmethod
    def cancel(self) -> None:
        """Take the announcement back."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""
