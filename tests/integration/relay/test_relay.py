"""The relay on every database, with a publisher that answers as the test says."""

import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from django_outbox import enqueue, signals
from django_outbox.conf import outbox_settings as settings_in_force
from django_outbox.exceptions import ImproperlyConfiguredOutbox
from django_outbox.models import OutboxMessage, Status
from django_outbox.publishers.base import Outcome
from django_outbox.relay import flights, presence
from django_outbox.relay.loop import Relay
from django_outbox.relay.settle import Totals
from django_outbox.relay.shutdown import Stop
from django_outbox.testing import ScriptedPublisher
from django_outbox.topics import TopicSelection
from tests.conftest import EVERY_DATABASE
from tests.support.threads import Worker, wait_until

on_every_database = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def enqueued(count=1, aggregate=None, topic="invoice.issued", **options):
    with transaction.atomic():
        return [
            enqueue(topic, {"n": n}, aggregate=("t", aggregate) if aggregate else None, **options)
            for n in range(count)
        ]


def relay_to(publisher, **options):
    return Relay(publisher_for=lambda alias: publisher, **options)


def rows():
    return OutboxMessage.objects.order_by("id")


def sent(publisher):
    return [message.payload["n"] for message in publisher.received]


def always(outcome):
    return ScriptedPublisher(lambda message: outcome)


@on_every_database
def test_a_committed_message_is_published_and_stamped(database):
    [row] = enqueued()
    publisher = ScriptedPublisher()
    assert relay_to(publisher).run_once() == Totals(claimed=1, published=1)
    [message] = publisher.received
    assert (message.id, message.payload, message.attempt) == (row.message_id, {"n": 0}, 1)
    row.refresh_from_db()
    assert (row.status, row.attempts, row.lease_token) == (Status.PUBLISHED, 1, None)
    assert row.published_at >= row.created_at


@on_every_database
def test_a_failed_message_waits_and_is_dead_after_the_limit(database, outbox_settings):
    outbox_settings(MAX_ATTEMPTS=2, BACKOFF_BASE=3600, BACKOFF_CAP=3600)
    [row] = enqueued()
    relay = relay_to(always(Outcome.FAILED))
    assert relay.drain() == Totals(claimed=1, retried=1)
    row.refresh_from_db()
    assert (row.status, row.attempts, row.last_error) == (Status.PENDING, 1, "scripted")
    assert relay.drain() == Totals(), "it is not due yet"
    rows().update(available_at=Now())
    assert relay.drain() == Totals(claimed=1, dead=1)
    row.refresh_from_db()
    assert (row.status, row.attempts) == (Status.DEAD, 2)


@on_every_database
def test_an_outage_charges_no_attempt_and_opens_and_closes_the_breaker_once(
    database, outbox_settings
):
    heard = []

    def opened(publisher, reason, **kwargs):
        heard.append(("opened", publisher, reason))

    def closed(publisher, **kwargs):
        heard.append(("closed", publisher))

    signals.breaker_opened.connect(opened)
    signals.breaker_closed.connect(closed)
    enqueued(3)
    publisher = ScriptedPublisher()
    publisher.is_down = True
    relay = relay_to(publisher)
    stop = Stop()
    worker = Worker(relay.run, stop)
    wait_until(lambda: heard, "the breaker opens")
    wait_until(lambda: not rows().exclude(lease_token=None).exists(), "the rows are released")
    time.sleep(1.2)  # long enough for some probes to come back in vain
    assert set(rows().values_list("status", "attempts")) == {(Status.PENDING, 0)}
    publisher.is_down = False
    wait_until(lambda: rows().published().count() == 3, "the backlog drains")
    stop.set()
    worker.result()
    assert heard == [("opened", "default", "scripted"), ("closed", "default")]
    assert set(rows().values_list("attempts", flat=True)) == {1}


@on_every_database
def test_one_broker_down_does_not_hold_back_the_other(database, outbox_settings):
    outbox_settings(
        PUBLISHERS={
            "up": {"BACKEND": "django_outbox.testing.ScriptedPublisher"},
            "down": {"BACKEND": "django_outbox.testing.ScriptedPublisher"},
        },
        ROUTES=[("order.*", {"publisher": "down"}), ("#", {"publisher": "up"})],
    )
    publishers = {"up": ScriptedPublisher(), "down": ScriptedPublisher()}
    publishers["down"].is_down = True
    enqueued(2, topic="order.placed")
    enqueued(2)
    relay = Relay(publisher_for=publishers.__getitem__)
    relay.drain()
    assert relay.is_any_broker_down
    assert len(publishers["up"].received) == 2
    enqueued(2)
    relay.drain()
    assert len(publishers["up"].received) == 4
    assert set(rows().pending().values_list("topic", "attempts")) == {("order.placed", 0)}


@on_every_database
def test_order_within_an_aggregate_survives_failures(database, outbox_settings):
    outbox_settings(BACKOFF_BASE=0.001, BACKOFF_CAP=0.001, MAX_ATTEMPTS=100)
    enqueued(8, aggregate="a")
    enqueued(8, aggregate="b")
    confirmed = {"a": [], "b": []}
    turns = iter(range(10**6))

    def every_third_fails(message):
        if next(turns) % 3 == 2:
            return Outcome.FAILED
        confirmed[message.aggregate_id].append(message.payload["n"])
        return Outcome.CONFIRMED

    relay = relay_to(ScriptedPublisher(every_third_fails))
    wait_until(lambda: relay.drain() == Totals() and not rows().pending().exists(), "all is sent")
    assert confirmed == {"a": list(range(8)), "b": list(range(8))}


@on_every_database
def test_what_stands_behind_a_failed_message_is_released_uncharged(database):
    enqueued(4, aggregate="a")
    publisher = ScriptedPublisher(
        lambda m: Outcome.FAILED if m.payload["n"] == 1 else Outcome.CONFIRMED
    )
    assert relay_to(publisher).run_once() == Totals(claimed=4, published=1, retried=1, released=2)
    assert sent(publisher) == [0, 1]
    assert list(rows().values_list("status", "attempts")) == [
        ("published", 1),
        ("pending", 1),
        ("pending", 0),
        ("pending", 0),
    ]


@on_every_database
@pytest.mark.parametrize(("ordering", "expected"), [("relaxed", [0, 1, 2]), ("none", [0, 1, 2])])
def test_without_strict_order_a_failure_holds_nothing_back(
    database, outbox_settings, ordering, expected
):
    outbox_settings(ROUTES=[("#", {"ordering": ordering})])
    enqueued(3, aggregate="a")
    publisher = ScriptedPublisher(
        lambda m: Outcome.FAILED if m.payload["n"] == 0 else Outcome.CONFIRMED
    )
    relay_to(publisher).run_once()
    assert sent(publisher) == expected
    assert list(rows().values_list("status", flat=True)) == ["pending", "published", "published"]


@on_every_database
def test_a_dead_message_holds_its_successors_only_where_the_route_says_so(
    database, outbox_settings
):
    outbox_settings(
        MAX_ATTEMPTS=1,
        ROUTES=[("account.*", {"on_dead": "block"}), ("#", {})],
    )
    for topic in ("account.closed", "invoice.issued"):
        enqueued(2, aggregate=topic, topic=topic)
    publisher = ScriptedPublisher(
        lambda m: Outcome.REJECTED if m.payload["n"] == 0 else Outcome.CONFIRMED
    )
    relay_to(publisher).drain()
    assert list(rows().values_list("topic", "status")) == [
        ("account.closed", "dead"),
        ("account.closed", "pending"),
        ("invoice.issued", "dead"),
        ("invoice.issued", "published"),
    ]


@on_every_database
def test_a_message_that_took_its_relay_along_runs_out_of_attempts(database, outbox_settings):
    outbox_settings(MAX_ATTEMPTS=2)
    [row] = enqueued()
    # As a relay leaves a row that died while publishing it, at its last attempt.
    rows().update(attempts=2)
    publisher = ScriptedPublisher()
    assert relay_to(publisher).run_once() == Totals(claimed=1, dead=1)
    assert publisher.received == []
    row.refresh_from_db()
    assert row.status == Status.DEAD
    assert "never settled in 2 attempts" in row.last_error


@on_every_database
def test_a_publish_that_outlives_its_lease_is_never_forced(database, outbox_settings):
    lost = []

    def on_lost(count, message_ids, **kwargs):
        lost.append((count, message_ids))

    signals.lease_lost.connect(on_lost)
    [row] = enqueued()
    other = ScriptedPublisher()

    def while_another_takes_over(message):
        rows().update(lease_expires_at=Now() - timedelta(seconds=1))
        assert relay_to(other).run_once() == Totals(claimed=1, published=1)
        return Outcome.FAILED

    slow = relay_to(ScriptedPublisher(while_another_takes_over))
    assert slow.run_once() == Totals(claimed=1, lost=1)
    row.refresh_from_db()
    assert (row.status, row.attempts, row.last_error) == (Status.PUBLISHED, 2, "")
    assert lost == [(1, [row.message_id])]


def test_rows_whose_turn_does_not_come_within_half_of_the_lease_are_released(database):
    enqueued(3, aggregate="a")
    settings = replace(settings_in_force(), lease=timedelta(seconds=1))

    def slow(message):
        time.sleep(0.6)
        return Outcome.CONFIRMED

    turn = relay_to(ScriptedPublisher(slow), settings=settings).run_once()
    assert turn == Totals(claimed=3, published=1, released=2)
    assert list(rows().values_list("status", "attempts"))[1:] == [("pending", 0)] * 2


def test_a_batch_is_bounded_by_bytes_but_takes_at_least_one(database, outbox_settings):
    outbox_settings(BATCH_BYTES=1000)
    with transaction.atomic():
        for size in (10, 10, 5000, 10):
            enqueue("invoice.issued", {"n": 0, "text": "x" * size})
    relay = relay_to(ScriptedPublisher())
    assert [relay.run_once().claimed for _ in range(4)] == [2, 1, 1, 0]


def test_only_the_topics_asked_for_are_published(database):
    enqueued(topic="invoice.issued")
    enqueued(topic="order.placed")
    publisher = ScriptedPublisher()
    relay_to(publisher, topics=TopicSelection.only(["order.*"])).drain()
    assert [message.topic for message in publisher.received] == ["order.placed"]


def test_a_topic_whose_route_is_gone_is_tried_again_with_that_reason(database, outbox_settings):
    [row] = enqueued()
    outbox_settings(ROUTES=[("order.*", {})])
    relay_to(ScriptedPublisher()).run_once()
    row.refresh_from_db()
    assert (row.status, row.attempts) == (Status.PENDING, 1)
    assert "OUTBOX['ROUTES']" in row.last_error


def test_published_rows_are_deleted_at_settle_where_nothing_keeps_them(database, outbox_settings):
    outbox_settings(RETENTION={"published": 0})
    enqueued(3)
    assert relay_to(ScriptedPublisher()).drain().published == 3
    assert not rows().exists()


SECRET = "jane@example.org"


class Broken(ScriptedPublisher):
    """Breaks its contract: it raises."""

    def publish(self, messages):
        raise ValueError(SECRET)


def test_a_publisher_that_raises_is_an_outage_and_its_text_is_kept_nowhere(database, caplog):
    heard = []
    enqueued()

    def opened(publisher, reason, **kwargs):
        heard.append(reason)

    signals.breaker_opened.connect(opened)
    relay_to(Broken()).run_once()
    assert heard == ["the publisher raised ValueError"]
    assert "in publish" in caplog.text, "the log says where"
    assert SECRET not in caplog.text
    assert set(rows().values_list("status", "attempts", "last_error")) == {("pending", 0, "")}


class Forgetful(ScriptedPublisher):
    """Breaks its contract: it forgets a receipt."""

    def publish(self, messages):
        return super().publish(messages)[1:]


def test_a_message_without_a_receipt_is_charged_and_tried_again(database):
    enqueued(2)
    relay_to(Forgetful()).run_once()
    assert list(rows().values_list("status", "attempts")) == [("pending", 1), ("published", 1)]


class Concurrent(ScriptedPublisher):
    """Publishes in the relay's threads; counts how many are at it."""

    supports_concurrent_publish = True

    def __init__(self):
        super().__init__()
        self.at_once = 0
        self.most = 0
        self.both = threading.Barrier(2)
        self.lock = threading.Lock()

    def publish(self, messages):
        with self.lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            self.both.wait(10)
            return super().publish(messages)
        finally:
            with self.lock:
                self.at_once -= 1


def test_while_one_batch_waits_for_its_confirms_the_next_is_claimed_and_sent(
    database, outbox_settings
):
    outbox_settings(BATCH_SIZE=5)
    enqueued(20)
    publisher = Concurrent()
    assert relay_to(publisher).drain().published == 20
    assert publisher.most == 2


def test_receivers_that_raise_disturb_nobody(database):
    def raises(**kwargs):
        raise RuntimeError

    for signal in (signals.message_published, signals.message_failed, signals.message_dead):
        signal.connect(raises)
    enqueued(2)
    turn = relay_to(
        ScriptedPublisher(lambda m: Outcome.FAILED if m.payload["n"] else Outcome.CONFIRMED)
    ).run_once()
    assert turn == Totals(claimed=2, published=1, retried=1)


def test_many_failures_of_one_kind_are_one_log_line(database, caplog):
    enqueued(50)
    relay_to(always(Outcome.REJECTED)).run_once()
    lines = [record for record in caplog.records if record.name == "django_outbox.relay"]
    assert [record.getMessage().split(":")[0] for record in lines] == [
        "Publishing failed, 50 messages will be tried again"
    ]
    assert lines[0].count == 50


def test_a_stop_settles_what_is_under_way_and_leaves_no_lease(database, outbox_settings):
    outbox_settings(BATCH_SIZE=2)
    enqueued(6)
    stop = Stop()
    publishing = threading.Event()

    class Slow(ScriptedPublisher):
        supports_concurrent_publish = True

        def publish(self, messages):
            publishing.set()
            time.sleep(0.3)
            return super().publish(messages)

    publisher = Slow()
    worker = Worker(relay_to(publisher).run, stop)
    assert publishing.wait(30)
    stop.set()
    worker.result()
    assert not rows().exclude(lease_token=None).exists()
    assert 0 < rows().published().count() < 6
    assert rows().published().count() == len(publisher.received)
    assert set(rows().pending().values_list("attempts", flat=True)) == {0}


def test_what_was_confirmed_before_the_stop_gave_up_stays_published(database, outbox_settings):
    outbox_settings(SHUTDOWN_TIMEOUT=0.3)
    enqueued(3, aggregate="a")
    stop, stuck, go_on = Stop(), threading.Event(), threading.Event()

    class StuckAtTheSecond(ScriptedPublisher):
        supports_concurrent_publish = True

        def publish(self, messages):
            if self.received:
                stuck.set()
                go_on.wait(60)
            return super().publish(messages)

    publisher = StuckAtTheSecond()
    worker = Worker(relay_to(publisher).run, stop)
    assert stuck.wait(30)
    stop.set()
    worker.result()
    assert list(rows().values_list("status", "attempts", "lease_token")) == [
        ("published", 1, None),
        ("pending", 0, None),
        ("pending", 0, None),
    ]
    go_on.set()
    wait_until(lambda: len(publisher.received) == 2, "the second is sent after all")
    assert sent(publisher) == [0, 1], "but nothing behind it"


def test_a_publisher_that_works_in_the_relays_thread_stops_between_two_messages(database):
    enqueued(50)
    stop = Stop()

    def stopping(message):
        stop.set()
        return Outcome.CONFIRMED

    publisher = ScriptedPublisher(stopping)
    relay_to(publisher).run(stop)
    assert 0 < len(publisher.received) < 50
    assert rows().published().count() == len(publisher.received)
    assert not rows().exclude(lease_token=None).exists()


def test_a_drain_that_is_stopped_settles_and_leaves_no_lease(database, outbox_settings):
    outbox_settings(BATCH_SIZE=2)
    enqueued(6)
    stop = Stop()

    def stopping(message):
        stop.set()
        return Outcome.CONFIRMED

    totals = relay_to(ScriptedPublisher(stopping)).drain(stop=stop)
    assert totals == Totals(claimed=2, published=2)
    assert not rows().exclude(lease_token=None).exists()


def test_where_order_holds_the_rest_back_few_claims_find_nothing(
    database, outbox_settings, monkeypatch
):
    outbox_settings(BATCH_SIZE=10)
    with transaction.atomic():
        for _ in range(50):
            for aggregate in range(20):  # two batches hold them all
                enqueue("invoice.issued", {"n": 0}, aggregate=("t", str(aggregate)))
    found = []
    claim = type(database).claim

    def counted(*arguments):
        found.append(claim(*arguments))
        return found[-1]

    monkeypatch.setattr(type(database), "claim", counted)

    class Slow(ScriptedPublisher):
        supports_concurrent_publish = True

        def publish(self, messages):
            time.sleep(0.02)
            return super().publish(messages)

    assert relay_to(Slow()).drain() == Totals(claimed=1000, published=1000)
    assert sum(batch is None for batch in found) < 20, "at each of 100 batches one"


def test_a_slow_broker_does_not_hold_back_the_other(database, outbox_settings):
    outbox_settings(
        PUBLISHERS={
            "fast": {"BACKEND": "django_outbox.testing.ScriptedPublisher"},
            "slow": {"BACKEND": "django_outbox.testing.ScriptedPublisher"},
        },
        ROUTES=[("order.*", {"publisher": "slow"}), ("#", {"publisher": "fast"})],
        BATCH_SIZE=4,
    )
    go_on = threading.Event()

    class Slow(ScriptedPublisher):
        supports_concurrent_publish = True

        def publish(self, messages):
            go_on.wait(60)
            return super().publish(messages)

    publishers = {"slow": Slow(), "fast": ScriptedPublisher()}
    for _ in range(10):
        enqueued(2, topic="order.placed")
        enqueued(2)
    stop = Stop()
    worker = Worker(Relay(publisher_for=publishers.__getitem__).run, stop)
    wait_until(lambda: rows().published().count() == 20, "all of the fast one's are out")
    leased = rows().exclude(lease_token=None).count()
    assert leased == 2 * flights.DEPTH, "the slow one has as many batches under way as it may"
    go_on.set()
    wait_until(lambda: rows().published().count() == 40, "the slow one's follow")
    stop.set()
    worker.result()


def test_a_publisher_that_cannot_be_made_is_found_before_anything_is_claimed(
    database, outbox_settings
):
    outbox_settings(PUBLISHERS={"default": {"BACKEND": "nowhere.Publisher"}})
    with pytest.raises(ImproperlyConfiguredOutbox, match="nowhere"):
        Relay()


def test_a_publisher_that_may_outlive_the_lease_is_refused(database, outbox_settings):
    class Slow(ScriptedPublisher):
        longest_publish = timedelta(seconds=31)

    with pytest.raises(ImproperlyConfiguredOutbox, match=r"'LEASE'.*'default'.*62 s or more"):
        relay_to(Slow())
    outbox_settings(LEASE=62)
    relay_to(Slow())


def test_a_stop_does_not_wait_longer_than_it_may_and_releases_the_rest(database, outbox_settings):
    outbox_settings(SHUTDOWN_TIMEOUT=0.3)
    enqueued(1)
    stop, publishing, go_on = Stop(), threading.Event(), threading.Event()

    class Stuck(ScriptedPublisher):
        supports_concurrent_publish = True

        def publish(self, messages):
            publishing.set()
            go_on.wait(60)
            return super().publish(messages)

    worker = Worker(relay_to(Stuck()).run, stop)
    assert publishing.wait(30)
    stop.set()
    worker.result()
    go_on.set()
    assert set(rows().values_list("status", "attempts", "lease_token")) == {("pending", 0, None)}


@on_every_database
def test_a_sleeping_relay_finds_scheduled_and_new_rows(database, outbox_settings):
    outbox_settings(POLL_INTERVAL=(0.01, 0.1))
    publisher = ScriptedPublisher()
    stop = Stop()
    worker = Worker(relay_to(publisher).run, stop)
    enqueued(delay=timedelta(seconds=0.5))
    wait_until(lambda: len(publisher.received) == 1, "the scheduled row is published")
    enqueued()
    wait_until(lambda: len(publisher.received) == 2, "the new row is published")
    stop.set()
    worker.result()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_listening_relay_is_woken_long_before_it_would_poll(
    database, outbox_settings, monkeypatch
):
    monkeypatch.setattr(presence, "INTERVAL", 3600)  # nor is it awake to say that it lives
    outbox_settings(WAKEUP="notify", POLL_INTERVAL=(60, 3600))
    publisher = ScriptedPublisher()
    stop = Stop()
    worker = Worker(relay_to(publisher).run, stop)
    for number in range(20):
        enqueued()
        wait_until(lambda n=number: len(publisher.received) == n + 1, "the relay is woken")
    enqueued(delay=timedelta(seconds=0.3))
    enqueued()
    wait_until(lambda: len(publisher.received) == 22, "the scheduled row is due")
    stop.set()
    worker.result()


def test_attempts_are_counted_at_claim_so_that_a_crash_counts(database):
    [row] = enqueued()
    relay = relay_to(ScriptedPublisher())
    relay.database.claim(relay._limits, "somebody")
    row.refresh_from_db()
    assert (row.attempts, row.leased_by) == (1, "somebody")
    assert OutboxMessage.objects.in_flight().count() == 1
    rows().update(lease_expires_at=F("lease_expires_at") - timedelta(hours=1))
    assert relay.drain() == Totals(claimed=1, published=1)
