"""The relay: claim, publish, settle, and again.

``run_once`` is the unit; ``drain`` and ``run`` repeat its steps with three batches under way, so that
claiming and settling overlap with waiting for confirms. The engine knows neither Django's commands
nor any broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from math import inf
from time import monotonic, sleep

from django.db import Error as DatabaseError
from django.db import NotSupportedError

from django_outbox.backoff import retry_delay
from django_outbox.batches import Batch, Claimed, Limits, Released, Verdict
from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.databases import Database, database_for, outbox_alias
from django_outbox.databases.errors import may_pass
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.publishers.base import Publisher, Receipt
from django_outbox.publishers.registry import lease_problems
from django_outbox.publishers.registry import publisher_for as registered_publisher
from django_outbox.relay.breakers import Breakers
from django_outbox.relay.claim import leased_by, limits_of
from django_outbox.relay.flights import Flight, Flights
from django_outbox.relay.presence import Presence
from django_outbox.relay.publish import BatchPublishing
from django_outbox.relay.settle import PATIENCE, Totals, settle
from django_outbox.relay.shutdown import Stop
from django_outbox.relay.verdicts import exhausted, is_exhausted, verdict
from django_outbox.relay.vitals import Condition, Watcher
from django_outbox.relay.wakeup import Wakeup
from django_outbox.topics import EVERY_TOPIC, TopicSelection

logger = logging.getLogger(__name__)

#: Seconds between two looks at a stop while batches are under way.
_GLANCE = 0.2
#: Claims that are spared before one looks again beside what order made enough.
_SPARED = 16
#: Seconds between two progress lines, which come only where something happened.
_PROGRESS = 30.0


class Relay:
    """One relay: any number of them work side by side, each in its own process or thread."""

    def __init__(
        self,
        database: Database | None = None,
        settings: OutboxSettings | None = None,
        *,
        publisher_for: Callable[[str], Publisher] = registered_publisher,
        topics: TopicSelection = EVERY_TOPIC,
        watcher: Watcher = lambda condition: None,
    ) -> None:
        """``watcher`` is told after every turn of ``run`` how the relay is: for files and systemd.

        Raises ``ImproperlyConfiguredOutbox`` where a publisher cannot be made, or may take longer than
        the lease allows.
        """
        self.settings = settings or outbox_settings()
        self.database = database or database_for(outbox_alias())
        self.totals = Totals()
        routes = self.settings.routes
        publishers = {route.publisher: publisher_for(route.publisher) for route in routes.routes}
        if problems := lease_problems(self.settings, publishers):
            raise ImproperlyConfiguredOutbox("\n".join(" ".join(each) for each in problems))
        self._watcher = watcher
        self._limits = limits_of(self.settings, topics)
        self._name = leased_by()
        self._presence = Presence(self.database, self._name, topics)
        self._breakers = Breakers(routes, publishers, self.settings.breaker_cap)
        publishing = BatchPublishing(
            routes, publishers, self.settings.retry, lambda: self._is_stopping
        )
        self._flights = Flights(publishing, publishers)
        self._stop: Stop | None = None
        self._stop_by: float | None = None
        self._may_find_more = True
        self._enough: float = inf
        """Batches under way beside which order let a claim find nothing."""
        self._spared = 0
        self._reported = replace(self.totals)
        self._report_at = monotonic() + _PROGRESS

    @property
    def is_any_broker_down(self) -> bool:
        """Whether messages were left because their broker does not answer."""
        return self._breakers.is_any_open

    def run_once(self) -> Totals:
        """Claim, publish and settle one batch. Returns what became of it."""
        before = replace(self.totals)
        self._begin(None)
        self._breakers.probe_now()
        self._take_off()
        while self._flights:
            self._settle_landed()
        return self.totals.since(before)

    def drain(self, max_seconds: float | None = None, stop: Stop | None = None) -> Totals:
        """Work until nothing is due, no broker answers, or time is up; then settle what is under way.

        Raises what the database raises. Works inside the transaction of a test case, too.
        """
        before = replace(self.totals)
        ends = None if max_seconds is None else monotonic() + max_seconds
        self._begin(stop)
        self._breakers.probe_now()
        self._tell()
        while not self._is_stopping and self._turn(may_claim=ends is None or monotonic() < ends):
            self._tell()
        self._finish()
        self._tell(stopped=True)
        return self.totals.since(before)

    def run(self, stop: Stop) -> None:
        """Work until the stop; then wait for what is under way, settle it, and release the rest.

        Survives the loss of the database and of brokers. Raises only for what no waiting can mend.
        """
        self._begin(stop)
        wakeup = self._wakeup()
        logger.info("The relay is at work.", extra={"event": "relay_started", "relay": self._name})
        try:
            failures = 0
            while not stop.is_set:
                try:
                    self._work(stop, wakeup)
                    if failures:
                        logger.warning(
                            "The database is back.",
                            extra={"event": "database_back", "database": self.database.alias},
                        )
                    failures = 0
                except DatabaseError as error:
                    if not may_pass(error):
                        raise
                    failures += 1
                    self._wait_for_database(error, failures)
            logger.info(
                "Stopping: %s.", stop.reason, extra={"event": "relay_stopping", "relay": self._name}
            )
            self._watcher(self._condition(is_stopping=True))
            self._finish()
            self._tell(stopped=True)
        finally:
            wakeup.close()
            self._report_progress(at_once=True)

    def _work(self, stop: Stop, wakeup: Wakeup) -> None:
        """One turn, and a sleep where it found nothing to do."""
        self._breakers.probe()
        self._tell()
        has_worked = self._turn()
        self._watcher(self._condition())
        if has_worked:
            wakeup.had_work()
        else:
            self.database.refresh_connection()
            to_probe = self._breakers.seconds_to_probe()
            # However long it may sleep, it says that it lives.
            at_most = min(to_probe or inf, max(self._presence.seconds_to_next, _GLANCE))
            if self._breakers.reachable().is_nothing:
                stop.wait(at_most)
            else:
                wakeup.sleep(stop, self._seconds_until_due, at_most)
                self.database.refresh_connection()
            self._expect_more()
        self._report_progress()

    def _condition(self, *, database_answers: bool = True, is_stopping: bool = False) -> Condition:
        return Condition(database_answers, tuple(sorted(self._breakers.outages)), is_stopping)

    def _turn(self, *, may_claim: bool = True) -> bool:
        """Settle what has come back, and send off another batch. False: there was nothing to do."""
        if self._settle_landed(wait=0):
            self._may_find_more = True
        if may_claim and self._may_find_more and self._take_off():
            return True
        if not self._flights:
            return False
        if not self._flights.wait(_GLANCE):
            self._may_find_more = True
        return True

    def _take_off(self) -> bool:
        """Claim a batch and send it on its way. False where nothing was due."""
        reachable = self._breakers.reachable(self._flights.full)
        if reachable.is_nothing:
            return False
        limits = replace(self._limits, reachable=reachable)
        batch = self.database.claim(limits, self._name)
        if batch is None:
            self._may_find_more = False
            self._enough = max(2, len(self._flights))
            self._spared = 0
            return False
        self._flights.send(batch)
        # After a batch that was not full, the next claim waits for news.
        self._may_find_more = _is_full(batch, limits) and self._is_worth_another_claim()
        return True

    def _is_worth_another_claim(self) -> bool:
        """Whether to claim at once beside what is under way.

        Where a claim beside as much found nothing, order holds the rest back, all of which the next one
        would walk over too: so only every so often.
        """
        if len(self._flights) < self._enough:
            return True
        self._spared += 1
        return self._spared % _SPARED == 0

    def _settle_landed(self, wait: float = _GLANCE) -> bool:
        """Settle every batch that has all its receipts. True where there was one."""
        landed = self._flights.take_landed(wait)
        for flight in landed:
            self._settle(flight)
        return bool(landed)

    def _settle(self, flight: Flight) -> None:
        receipts = dict(flight.receipts)
        if flight.alias is not None:
            self._breakers.look_at(flight.alias, receipts.values(), flight.batch.started)
        verdicts = {
            each.row_id: self._verdict(each, receipts.get(each.row_id))
            for each in flight.batch.claimed
        }
        settled = settle(
            self.database,
            flight.batch,
            verdicts,
            delete_published=self.settings.retention.published == timedelta(0),
            pause=self._pause,
        )
        self.totals.add(settled)

    def _verdict(self, each: Claimed, receipt: Receipt | None) -> Verdict:
        if is_exhausted(each.attempts, self.settings.retry):
            return exhausted(each.attempts)
        if receipt is None:  # it was not sent, or the broker has not answered
            return Released()
        return verdict(receipt, each.attempts, self.settings.retry)

    def _begin(self, stop: Stop | None) -> None:
        self._stop, self._stop_by = stop, None
        self._expect_more()

    def _expect_more(self) -> None:
        self._may_find_more = True
        self._enough, self._spared = inf, 0

    @property
    def _is_stopping(self) -> bool:
        return self._stop is not None and self._stop.is_set

    def _finish(self) -> None:
        """Wait for what is under way, as long as a stop may take; settle it, and release the rest."""
        while self._flights and monotonic() < self._patience_ends():
            self._settle_landed()
        for flight in self._flights.take_all():
            self._settle(flight)

    def _patience_ends(self) -> float:
        """Until when a stop waits, from the first time it is asked."""
        if self._stop_by is None:
            self._stop_by = monotonic() + self.settings.shutdown_timeout.total_seconds()
        return self._stop_by

    def _pause(self, seconds: float) -> bool:
        """Sleep while the database is away. False: the relay stops and may wait no longer."""
        if self._stop is not None and not self._is_stopping:
            self._stop.wait(seconds)
            return True
        sleep(seconds)
        return not self._is_stopping or monotonic() < self._patience_ends()

    def _wait_for_database(self, error: DatabaseError, failures: int) -> None:
        if failures == 1:
            logger.warning(
                "The database does not let the relay work (%s); it goes on as soon as it can.",
                type(error.__cause__ or error).__name__,
                extra={"event": "database_away", "database": self.database.alias},
            )
        self._watcher(self._condition(database_answers=False))
        self.database.connection.close()
        self._pause(retry_delay(failures, PATIENCE).total_seconds())

    def _seconds_until_due(self) -> float | None:
        limits = replace(self._limits, reachable=self._breakers.reachable())
        return self.database.seconds_until_due(limits)

    def _wakeup(self) -> Wakeup:
        if self.settings.wakeup == "poll":
            return Wakeup(self.settings.poll_interval)
        try:
            return Wakeup(self.settings.poll_interval, self.database.listener())
        except NotSupportedError as error:
            problem = f"OUTBOX['WAKEUP'] is 'notify', which cannot be on this database: {error}"
            raise ImproperlyConfiguredOutbox(problem) from error

    def _tell(self, *, stopped: bool = False) -> None:
        self._presence.tell(self.totals, self._breakers.outages, stopped=stopped)

    def _report_progress(self, *, at_once: bool = False) -> None:
        if not at_once and monotonic() < self._report_at:
            return
        self._report_at = monotonic() + _PROGRESS
        since = self.totals.since(self._reported)
        self._reported = replace(self.totals)
        if since != Totals():
            logger.info(
                "Progress: %s.",
                since,
                extra={"event": "relay_progress", "relay": self._name, **asdict(since)},
            )


def _is_full(batch: Batch, limits: Limits) -> bool:
    size = sum(each.size for each in batch.claimed)
    return len(batch) >= limits.rows or 2 * size >= limits.bytes
