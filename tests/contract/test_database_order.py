"""What every database promises about order within an aggregate: one body for all of them."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from django_outbox.batches import Batch, Dead, Limits, Published, Released, Retry, Verdict
from django_outbox.databases import Database
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import OutboxMessage, Status
from django_outbox.topics import EVERY_TOPIC, NO_TOPIC, TopicSelection
from tests.support.isolation import isolation  # noqa: F401 - a fixture
from tests.support.rows import LIMITS, new_message, write
from tests.support.threads import elsewhere

pytestmark = pytest.mark.parametrize("database", ["postgresql", "mysql", "sqlite"], indirect=True)

LONG = 60.0
AT_ONCE = timedelta(0)


def limits(
    topics: TopicSelection = EVERY_TOPIC,
    unordered: TopicSelection = NO_TOPIC,
    blocking: TopicSelection = NO_TOPIC,
    rows: int = 500,
) -> Limits:
    return Limits(
        rows=rows,
        bytes=1 << 30,
        lease=timedelta(seconds=600),
        topics=topics,
        unordered=unordered,
        blocking=blocking,
    )


def put(database: Database, *names: str, topic: str = "invoice.issued") -> None:
    """Write one message for each name: the letter is its aggregate, none for '-'."""
    write(
        database,
        *(
            new_message(
                topic, f'"{name}"', aggregate=("", "") if name[0] == "-" else ("t", name[0])
            )
            for name in names
        ),
    )


def names(batch: Batch | None) -> str:
    """The names of what was claimed, in its order."""
    return " ".join(claimed.message.payload for claimed in batch.claimed) if batch else ""


def take(database: Database, wanted: Limits = LIMITS) -> str:
    return names(database.claim(wanted, "host:1"))


def settle(database: Database, batch: Batch | None, **verdicts: Verdict) -> None:
    """Settle by name; what is not named stays in flight."""
    assert batch is not None
    rows = {claimed.message.payload: claimed.row_id for claimed in batch.claimed}
    database.settle(batch.token, {rows[name]: verdict for name, verdict in verdicts.items()})


def test_messages_of_one_aggregate_are_claimed_together_in_order(database: Database) -> None:
    put(database, "a1", "b1", "a2", "-1", "a3", "b2")
    assert take(database) == "a1 b1 a2 -1 a3 b2"


def test_while_one_is_in_flight_later_ones_of_its_aggregate_wait(database: Database) -> None:
    put(database, "a1", "b1", "-1")
    assert take(database, limits(rows=1)) == "a1"
    put(database, "a2", "b2", "-2")
    assert take(database) == "b1 -1 b2 -2"


def test_one_that_backs_off_holds_back_its_aggregate_only(database: Database) -> None:
    put(database, "a1", "a2", "b1")
    batch = database.claim(LIMITS, "host:1")
    settle(
        database,
        batch,
        a1=Retry(timedelta(hours=1), "x"),
        a2=Released(),
        b1=Retry(timedelta(hours=1), "x"),
    )
    put(database, "a3", "b2", "c1", "-1")
    assert take(database) == "c1 -1"
    OutboxMessage.objects.filter(payload="a1").update(available_at=DatabaseNow())
    assert take(database) == "a1"


def test_after_the_first_is_published_the_next_follow(database: Database) -> None:
    put(database, "a1", "a2")
    batch = database.claim(limits(rows=1), "host:1")
    assert take(database) == ""
    settle(database, batch, a1=Published())
    assert take(database) == "a2"


def test_what_a_dead_relay_left_behind_is_taken_up_from_the_first(database: Database) -> None:
    put(database, "a1", "a2", "a3", "b1")
    assert take(database, limits(rows=2)) == "a1 a2"
    OutboxMessage.objects.exclude(lease_token=None).update(lease_expires_at=DatabaseNow())
    assert take(database) == "a1 b1"
    assert take(database) == ""


def test_a_dead_message_lets_its_successors_pass(database: Database) -> None:
    put(database, "a1", "a2")
    batch = database.claim(limits(rows=1), "host:1")
    settle(database, batch, a1=Dead("x"))
    assert take(database) == "a2"


def test_a_dead_message_of_a_blocking_topic_holds_them_back(database: Database) -> None:
    blocking = limits(blocking=TopicSelection.only(["invoice.*"]))
    put(database, "a1", "b1")
    put(database, "c1", topic="mail.sent")
    batch = database.claim(blocking, "host:1")
    settle(database, batch, a1=Dead("x"), b1=Published(), c1=Dead("x"))
    put(database, "a2", "b2", "c2", "-1")
    assert take(database, blocking) == "b2 c2 -1"
    OutboxMessage.objects.filter(payload="a1").update(status=Status.DISCARDED)
    assert take(database, blocking) == "a2"


def test_topics_without_order_hold_nothing_back(database: Database) -> None:
    loose = limits(unordered=TopicSelection.only(["mail.#"]))
    put(database, "a1", "a2", topic="mail.sent")
    put(database, "b1", "b2", topic="invoice.issued")
    batch = database.claim(loose, "host:1")
    settle(
        database,
        batch,
        a1=Retry(timedelta(hours=1), "x"),
        a2=Retry(AT_ONCE, "x"),
        b1=Retry(timedelta(hours=1), "x"),
        b2=Retry(AT_ONCE, "x"),
    )
    put(database, "a3", "b3", topic="mail.sent")
    put(database, "a4", "b4", topic="invoice.issued")
    assert take(database, loose) == "a2 a3 b3 a4"


def test_without_any_order_everything_due_is_taken(database: Database) -> None:
    loose = limits(unordered=EVERY_TOPIC)
    put(database, "a1", "a2")
    batch = database.claim(loose, "host:1")
    settle(database, batch, a1=Retry(timedelta(hours=1), "x"), a2=Retry(AT_ONCE, "x"))
    put(database, "a3")
    assert take(database, loose) == "a2 a3"


def test_a_delayed_message_does_not_hold_back_its_aggregate(database: Database) -> None:
    write(
        database, new_message(payload='"a1"', aggregate=("t", "a"), delay=timedelta(seconds=3600))
    )
    put(database, "a2")
    assert take(database) == "a2"


def test_two_aggregates_are_the_same_only_with_type_and_id(database: Database) -> None:
    write(
        database,
        new_message(payload='"x1"', aggregate=("x", "1")),
        new_message(payload='"y1"', aggregate=("y", "1")),
    )
    batch = database.claim(LIMITS, "host:1")
    settle(database, batch, x1=Retry(timedelta(hours=1), "x"), y1=Published())
    write(
        database,
        new_message(payload='"x2"', aggregate=("x", "1")),
        new_message(payload='"y2"', aggregate=("y", "1")),
        new_message(payload='"x3"', aggregate=("", "1")),
    )
    assert take(database) == "y2 x3"


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (TopicSelection.only(["invoice.*"]), "invoice.issued invoice.paid"),
        (TopicSelection.only(["#.eu", "mail"]), "invoice.issued.eu mail"),
        (TopicSelection.only(["invoice.#"]), "invoice.issued invoice.paid invoice.issued.eu"),
        (
            TopicSelection((("invoice.paid", False), ("invoice.*", True)), default=False),
            "invoice.issued",
        ),
        (
            TopicSelection((("invoice.#", False),), default=True),
            "Invoice.issued invoiceXissued mail order-line.added_2",
        ),
        (TopicSelection.only(["order-line.added_2"]), "order-line.added_2"),
        (NO_TOPIC, ""),
    ],
)
def test_only_the_selected_topics_are_claimed(
    database: Database, selection: TopicSelection, expected: str
) -> None:
    topics = (
        "invoice.issued",
        "invoice.paid",
        "invoice.issued.eu",
        "Invoice.issued",
        "invoiceXissued",
        "mail",
        "order-line.added_2",
    )
    for topic in topics:
        put(database, "-1", topic=topic)
    batch = database.claim(limits(selection), "host:1")
    claimed = [c.message.topic for c in batch.claimed] if batch else []
    assert " ".join(claimed) == expected
    assert claimed == [topic for topic in topics if topic in selection]


def test_the_next_due_time_heeds_order_and_topics(database: Database) -> None:
    put(database, "a1")
    batch = database.claim(LIMITS, "host:1")
    put(database, "a2")
    assert database.seconds_until_due(LIMITS) is None
    settle(database, batch, a1=Retry(timedelta(seconds=1000), "x"))
    wait = database.seconds_until_due(LIMITS)
    assert wait is not None
    assert 1000 - LONG < wait <= 1000
    put(database, "b1", topic="mail.sent")
    others = limits(TopicSelection((("mail.*", False),), default=True))
    assert database.backlog_is_due(LIMITS)
    assert not database.backlog_is_due(others)
    assert not database.backlog_is_due(limits(NO_TOPIC))


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"], indirect=True)
def test_relays_side_by_side_keep_the_order_of_every_aggregate(
    database: Database,
    isolation: str,  # noqa: F811
) -> None:
    """Four relays, a tenth of the publishes fails; each aggregate is with one relay at a time."""
    aggregates, each = 12, 12
    put(
        database,
        *(f"{chr(97 + n % aggregates)}{n // aggregates}" for n in range(aggregates * each)),
    )
    order = Ledger()

    def relay(number: int) -> None:
        chance = random.Random(number)
        while order.published < aggregates * each:
            batch = database.claim(limits(rows=9), f"host:{number}")
            if batch is None:
                order.changed.wait(0.01)
                continue
            order.claimed(batch)
            verdicts: dict[int, Verdict] = {}
            failed: set[str] = set()
            for claimed in batch.claimed:
                aggregate = claimed.message.aggregate_id
                if aggregate in failed:
                    verdicts[claimed.row_id] = Released()
                elif chance.random() < 0.1:
                    failed.add(aggregate)
                    verdicts[claimed.row_id] = Retry(AT_ONCE, "Nacked")
                else:
                    verdicts[claimed.row_id] = Published()
            order.settling(batch, verdicts)
            assert database.settle(batch.token, verdicts).lost == 0

    relays = [elsewhere(partial(relay, number)) for number in range(4)]
    for running in relays:
        running.result(LONG)
    assert order.problems == []
    assert order.published == aggregates * each
    assert set(OutboxMessage.objects.values_list("status", flat=True)) == {Status.PUBLISHED}


class Ledger:
    """Watches relays: who has which aggregate, and what has gone out last."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.published = 0
        self.changed = threading.Event()
        self._lock = threading.Lock()
        self._holder: dict[str, UUID] = {}
        self._last: dict[str, int] = defaultdict(int)

    def claimed(self, batch: Batch) -> None:
        with self._lock:
            for claimed in batch.claimed:
                aggregate = claimed.message.aggregate_id
                if self._holder.setdefault(aggregate, batch.token) != batch.token:
                    self.problems.append(f"{aggregate} is with two relays")

    def settling(self, batch: Batch, verdicts: dict[int, Verdict]) -> None:
        with self._lock:
            for claimed in batch.claimed:
                aggregate = claimed.message.aggregate_id
                self._holder.pop(aggregate, None)
                if isinstance(verdicts[claimed.row_id], Published):
                    self.published += 1
                    if claimed.row_id <= self._last[aggregate]:
                        self.problems.append(f"{claimed.message.payload} came late or twice")
                    self._last[aggregate] = claimed.row_id
