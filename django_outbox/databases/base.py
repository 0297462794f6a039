"""What the outbox asks of a database. One subclass a vendor; nothing else knows a vendor."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from time import monotonic, sleep
from typing import Any, ClassVar, NamedTuple, TypeVar
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import NotSupportedError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_outbox.batches import Batch, Limits, Settlement, Verdict
from django_outbox.conf import outbox_settings
from django_outbox.databases.clock import as_model_value
from django_outbox.databases.connecting import refresh
from django_outbox.databases.errors import is_retryable
from django_outbox.databases.free_rows import Dialect, Fragment, held_back
from django_outbox.databases.outcomes import Lease, Outcomes
from django_outbox.databases.rows import claimed_rows
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.routing import Ordering

logger = logging.getLogger(__name__)

#: How often a transaction of ours is run before its deadlock or lock time-out is the caller's.
TRANSACTION_ATTEMPTS = 5
#: Seconds a claim waits for another relay's claim, which takes milliseconds.
CLAIM_LOCK_TIMEOUT = 10
#: Rows in one INSERT.
ROWS_PER_STATEMENT = 1000

#: Producers may manage their transactions by hand; whatever else works on the outbox commits by itself.
AUTOCOMMIT_IS_OFF = (
    "DATABASES[{alias!r}]['AUTOCOMMIT'] is off, or set_autocommit(False) was called: what a relay claims"
    " and settles would not be committed, and every message would be published again."
)

T = TypeVar("T")


class NewMessage(NamedTuple):
    """The columns of a row to be written, checked and encoded. ``payload`` and ``headers`` are JSON text.

    A named tuple: one is made for every event, and it costs a third of a frozen dataclass.
    """

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
    is_fresh: bool = False
    """The message id was made for this row just now: nobody can have used it, so none need be looked for."""
    index_tag: str = ""
    """Keyed tag of the member by which support finds a person's messages; empty: none."""


class Inserted(NamedTuple):
    """What the database filled in for a new row."""

    row_id: int
    available_at: datetime
    created_at: datetime


class Database(ABC):
    """One alias of ``DATABASES``, through the eyes of the outbox.

    Every method uses the calling thread's connection of Django. ``claim`` and ``settle`` open and
    commit a transaction of their own and retry what the vendor says may be retried
    (databases/errors.py); neither may be called inside ``atomic()``, except in tests that wrap
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
        out, without an error of the database; the result holds those that were written. A concurrent
        insert of the same message id is waited for.
        """

    def claim(self, limits: Limits, leased_by: str) -> Batch | None:
        """Take due rows under a new lease, or None where nothing is due.

        Counts the attempt, passes over what others hold, keeps order within aggregates whatever the
        number of relays, and returns rows sorted by id.
        """
        started = monotonic()
        lease = Lease.new(limits.lease, leased_by)
        rows = self.retrying(lambda: self._take(limits, lease))
        if not rows:
            return None
        return Batch(lease.token, claimed_rows(rows), limits.lease, started)

    def settle(
        self, token: UUID, verdicts: Mapping[int, Verdict], *, delete_published: bool = False
    ) -> Settlement:
        """Write verdicts (row id -> verdict) back in one transaction, fenced by the lease's token.

        A row whose lease has another token by now is left as it is and counted as lost.
        """
        if not verdicts:
            return Settlement()
        outcomes = Outcomes.of(verdicts)
        written = self.retrying(lambda: self._write(token, outcomes, delete_published))
        lost = tuple(sorted(verdicts.keys() - written))
        return Settlement(len(verdicts) - len(lost), len(lost), lost)

    @abstractmethod
    def _take(self, limits: Limits, lease: Lease) -> Sequence[Sequence[Any]]:
        """Claim in a transaction of its own; returns rows of ``rows.CLAIMED_COLUMNS``."""

    @abstractmethod
    def _write(self, token: UUID, outcomes: Outcomes, delete_published: bool) -> set[int]:
        """Settle in a transaction of its own; returns the ids of the rows whose lease still held."""

    @abstractmethod
    def insert_new(self, consumer: str, rows: Sequence[Mapping[str, object]]) -> set[UUID]:
        """Insert ProcessedMessage rows in the caller's transaction; returns the ids that were new.

        ``rows`` map the column names (without consumer, id and processed_at) to values. A concurrent
        insert of the same id is waited for: not new if it commits, new if it rolls back. A conflict
        raises nothing and breaks no transaction, with one exception: on MySQL and MariaDB, when the
        first rolls back while several wait for it, InnoDB calls it a deadlock of those who waited;
        one goes on, the others' transactions are rolled back with an error that ``is_retryable``.
        """

    @abstractmethod
    def one_at_a_time(self, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one, in this database, that does the named work; yields whether it is.

        Held until the block ends, across transactions; never waits.
        """

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """The words in which this database differs from the others."""

    def held_back(self) -> Fragment:
        """The condition of the pending rows that order holds back now, as the routes want it."""
        routes = outbox_settings().routes
        unordered = routes.topics_by_ordering(Ordering.NONE)
        return held_back(self.dialect, self.table, unordered, routes.topics_blocked_by_dead())

    def backlog_is_due(self, limits: Limits) -> bool:
        """Whether a claim now would find anything; reads only."""
        return self.seconds_until_due(limits) == 0

    @abstractmethod
    def seconds_until_due(self, limits: Limits) -> float | None:
        """Seconds until a claim would find something: 0 now, None while nothing waits for its time.

        Rows held back by order, and rows under a live lease, do not count. Reads only.
        """

    def listener(self) -> WorkListener:
        """A listener that is woken by new rows. Raises ``NotSupportedError`` where there is none."""
        raise NotSupportedError(f"{self.vendor} has no LISTEN/NOTIFY: use WAKEUP = 'poll'.")

    def problems(self) -> list[tuple[str, str]]:
        """What the configuration of this alias makes wrong, as (problem, hint). Connects to nothing."""
        if self.connection.features.supports_timezones:
            return []
        zone = self.connection.settings_dict["TIME_ZONE"] if settings.USE_TZ else settings.TIME_ZONE
        if zone in (None, "UTC"):
            return []
        problem = (
            f"The outbox keeps its times in UTC, but Django reads those of the database"
            f" {self.alias!r} as times in {zone}: what is shown and filtered is hours off."
        )
        return [(problem, "Leave TIME_ZONE out of the alias's settings, and USE_TZ on.")]

    def server_problems(self) -> list[tuple[str, str]]:
        """What the server lacks or is set up wrong for, as (problem, hint). Asks the server."""
        return []

    def retrying(self, work: Callable[[], T]) -> T:
        """Run one transaction, and again where the database took it back (databases/errors.py).

        Inside a transaction of the caller it runs once: what is lost there is not ours to repeat.
        """
        attempts = 1 if self.connection.in_atomic_block else TRANSACTION_ATTEMPTS
        for attempt in range(1, attempts):
            try:
                return work()
            except DatabaseError as error:
                if not is_retryable(error):
                    raise
                sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 - spreads load, hides nothing
        return work()

    def warn_of_stuck_claim(self) -> None:
        """Say that another relay holds up all claims of ordered messages."""
        logger.warning(
            "Another relay has been claiming for more than %d s; nothing was claimed.",
            CLAIM_LOCK_TIMEOUT,
            extra={"event": "claim_waits", "database": self.alias},
        )

    @contextmanager
    def transaction(self) -> Iterator[CursorWrapper]:
        """A short transaction of its own, and a cursor in it.

        Raises ``ImproperlyConfiguredOutbox`` where autocommit is off: nothing would ever be committed.
        """
        connection = self.connection
        if not connection.in_atomic_block and not connection.get_autocommit():
            raise ImproperlyConfiguredOutbox(AUTOCOMMIT_IS_OFF.format(alias=self.alias))
        with transaction.atomic(using=self.alias), self.connection.cursor() as cursor:
            yield cursor

    def walk_indexes(self, cursor: CursorWrapper) -> None:  # noqa: B027 - most need not be told
        """Have the rest of the transaction read tables in the order of their indexes, whatever the
        statistics say, which are of a time when the table looked different: a queue's always are."""

    def refresh_connection(self) -> None:
        """Close this thread's connection if it broke or is too old: for loops, between two turns."""
        refresh(self.connection)

    @cached_property
    def table(self) -> str:
        """The outbox's table, quoted."""
        return self._table_of("OutboxMessage")

    @cached_property
    def inbox_table(self) -> str:
        """The inbox's table, quoted."""
        return self._table_of("ProcessedMessage")

    def _table_of(self, model: str) -> str:
        # By name: the models' modules import this package for their indexes.
        return self.quote(apps.get_model("django_outbox", model)._meta.db_table)

    def quote(self, name: str) -> str:
        """A table or column name quoted for this database."""
        return self.connection.ops.quote_name(name)


def inserted(found: Iterable[tuple[UUID | str, int, Any, Any]]) -> dict[UUID, Inserted]:
    """What an INSERT returned (message id, row id, due, written) as the contract wants it."""
    return {
        message_id if isinstance(message_id, UUID) else UUID(message_id): Inserted(
            row_id, as_model_value(due), as_model_value(written)
        )
        for message_id, row_id, due, written in found
    }


def processed_row(row: Mapping[str, Any]) -> tuple[UUID, str, str, str, int | None]:
    """An inbox row as ``insert_new`` takes it, with what may be left out filled in."""
    message_id = row["message_id"]
    return (
        message_id if isinstance(message_id, UUID) else UUID(str(message_id)),
        row.get("topic", ""),
        row.get("aggregate_type", ""),
        row.get("aggregate_id", ""),
        row.get("sequence"),
    )


def chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in pieces of what one statement writes."""
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]


class WorkListener(ABC):
    """Sleeps until rows are written. Owns a connection of its own; not shared between threads.

    A lost connection is logged, never raised: the listener polls like everybody else and connects
    again at the next ``prepare``.
    """

    @abstractmethod
    def prepare(self) -> bool:
        """Announce that this relay is about to sleep. False: it cannot be announced now, poll instead.

        After True the caller looks for due rows once more, then calls ``wait`` or ``cancel``. After
        False it may call ``wait`` as well, for no longer than it would poll: one relay at a time is
        announced, and the others hear what wakes it.
        """

    @abstractmethod
    def wait(self, seconds: float, wake_fd: int | None = None) -> bool:
        """Sleep until woken, until ``wake_fd`` is readable, or for that long. True: woken by new rows.

        The announcement ends with it. Nothing is read from ``wake_fd``.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Take the announcement back."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection. The listener can be used again."""
