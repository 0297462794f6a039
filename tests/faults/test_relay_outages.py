"""The broker or the database goes away and comes back: the relay goes on, and nothing is charged."""

import logging
import tracemalloc

import pytest
from django.db import connection, transaction

from django_outbox import enqueue
from django_outbox.models import OutboxMessage
from django_outbox.producer import Event, enqueue_many
from django_outbox.relay.loop import Relay
from django_outbox.relay.settle import Totals
from django_outbox.relay.shutdown import Stop
from django_outbox.testing import ScriptedPublisher
from tests.support.aliases import set_up
from tests.support.outages import database_away
from tests.support.relay_children import rabbitmq_outbox
from tests.support.threads import Worker, wait_until


def enqueued(count):
    with transaction.atomic():
        return enqueue_many([Event("invoice.issued", {"n": n}) for n in range(count)])


@pytest.fixture
def running():
    """Runs relays in threads, and stops them at the end."""
    stop = Stop()
    workers = []

    def run(relay):
        workers.append(Worker(relay.run, stop))
        return workers[-1]

    yield run
    stop.set()
    for worker in workers:
        worker.result()


def breaker_lines(caplog):
    lines = [r.getMessage() for r in caplog.records if r.name == "django_outbox.relay"]
    return [("down" if "is down" in line else "back") for line in lines if "broker" in line]


def all_published():
    return not OutboxMessage.objects.exclude(status="published").exists()


@pytest.mark.parametrize("trouble", ["refuse", "stall", "cut"])
def test_a_broker_that_goes_and_comes_back_costs_no_attempt(
    database, rabbitmq, settings, running, caplog, trouble
):
    caplog.set_level(logging.INFO, "django_outbox")
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    with rabbitmq.proxy() as proxy:
        settings.OUTBOX = rabbitmq_outbox(
            rabbitmq.through(proxy),
            exchange,
            BATCH_SIZE=100,
            BREAKER_CAP=0.5,
            LEASE=10,
            CONFIRM_TIMEOUT=2,
            stack_timeout=2,
            confirm_timeout=2,
        )
        rows = enqueued(300)
        running(Relay())
        wait_until(all_published, "the first messages are out")
        if trouble == "cut":
            proxy.cut_after(40_000)
            rows += enqueued(1000)
        else:
            getattr(proxy, trouble)()
            rows += enqueued(1000)
            wait_until(lambda: breaker_lines(caplog) == ["down"], "the breaker opens")
            wait_until(
                lambda: not OutboxMessage.objects.exclude(lease_token=None).exists(),
                "what was claimed is released",
            )
            waiting = OutboxMessage.objects.pending()
            assert set(waiting.values_list("attempts", flat=True)) == {0}
            proxy.flow()
            proxy.accept()
        wait_until(all_published, "the backlog drains without a restart")
        wait_until(lambda: breaker_lines(caplog)[-1:] == ["back"], "the breaker closes")
    assert breaker_lines(caplog) == ["down", "back"]
    assert set(OutboxMessage.objects.values_list("attempts", flat=True)) == {1}
    assert set(rabbitmq.ids(queue)) == {row.message_id for row in rows}


def test_a_memory_alarm_blocks_the_relay_and_charges_nothing(
    database, rabbitmq_node, settings, running, caplog
):
    caplog.set_level(logging.INFO, "django_outbox")
    broker = rabbitmq_node.broker
    exchange = broker.exchange()
    queue = broker.queue(exchange)
    settings.OUTBOX = rabbitmq_outbox(broker.url, exchange, BREAKER_CAP=0.5)
    running(Relay())
    with rabbitmq_node.memory_alarm():
        rows = enqueued(200)
        wait_until(lambda: breaker_lines(caplog) == ["down"], "the breaker opens")
        assert set(OutboxMessage.objects.pending().values_list("attempts", flat=True)) <= {0, 1}
    wait_until(all_published, "the backlog drains")
    assert breaker_lines(caplog) == ["down", "back"]
    assert set(OutboxMessage.objects.values_list("attempts", flat=True)) == {1}
    assert set(broker.ids(queue)) == {row.message_id for row in rows}


def backends_of_others():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return len(cursor.fetchall())


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("wakeup", ["poll", "notify"])
def test_a_database_connection_terminated_while_idle_is_replaced(
    database, outbox_settings, running, wakeup
):
    outbox_settings(WAKEUP=wakeup, BACKOFF_BASE=0.05)
    publisher = ScriptedPublisher()
    running(Relay(publisher_for=lambda alias: publisher))
    for number in range(1, 4):
        enqueued(1)
        wait_until(lambda n=number: len(publisher.received) == n, "the message is published")
        wait_until(all_published, "and settled")
        assert backends_of_others() >= 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_database_connection_terminated_before_a_settle_is_replaced(database, outbox_settings):
    outbox_settings(BACKOFF_BASE=0.05)
    enqueued(3)

    class Terminating(ScriptedPublisher):
        supports_concurrent_publish = True

        def publish(self, messages):
            try:
                assert backends_of_others() >= 1
            finally:
                connection.close()
            return super().publish(messages)

    publisher = Terminating()
    relay = Relay(publisher_for=lambda alias: publisher)
    assert relay.run_once() == Totals(claimed=3, published=3)
    assert all_published()
    assert len(publisher.received) == 3


class AwayWhileSettled(ScriptedPublisher):
    """The database goes away while this publishes, for the relay's own thread as well."""

    def __init__(self, away):
        super().__init__()
        self.away = away

    def publish(self, messages):
        self.away.__enter__()
        return super().publish(messages)


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_settle_is_given_up_when_the_lease_is_over(database, outbox_settings, caplog):
    outbox_settings(LEASE=1, CONFIRM_TIMEOUT=0.5)
    enqueued(3)
    away = database_away()
    relay = Relay(publisher_for=lambda alias: AwayWhileSettled(away))
    assert relay.run_once() == Totals(claimed=3, lost=3)
    away.__exit__(None, None, None)
    assert "3 messages could not be settled" in caplog.text
    publisher = ScriptedPublisher()
    relay = Relay(publisher_for=lambda alias: publisher)
    wait_until(lambda: relay.run_once() == Totals(3, 3), "they are published again", every=0.1)


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_stop_does_not_wait_for_a_database_longer_than_it_may(database, outbox_settings):
    outbox_settings(SHUTDOWN_TIMEOUT=0.5)
    enqueued(3)
    away, stop = database_away(), Stop()

    class Stopping(AwayWhileSettled):
        def publish(self, messages):
            stop.set()
            return super().publish(messages)

    try:
        Relay(publisher_for=lambda alias: Stopping(away)).run(
            stop
        )  # or it would take the minute of a lease
    finally:
        away.__exit__(None, None, None)
    assert OutboxMessage.objects.in_flight().count() == 3


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_database_that_somebody_holds_locked_is_waited_for(
    database, running, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "django_outbox")
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.01)
    publisher = ScriptedPublisher()
    with transaction.atomic():
        enqueue("invoice.issued", {"n": 1})
        running(Relay(publisher_for=lambda alias: publisher))
        wait_until(lambda: "does not let the relay work" in caplog.text, "the relay is locked out")
    wait_until(lambda: publisher.received, "the relay goes on")
    wait_until(lambda: "The database is back" in caplog.text, "and says so")


def test_a_database_that_gives_statements_up_is_waited_for(database, running, caplog):
    caplog.set_level(logging.INFO, "django_outbox")
    publisher = ScriptedPublisher()
    with set_up(OPTIONS={"options": "-c statement_timeout=50ms"}):
        with transaction.atomic():
            enqueue("invoice.issued", {"n": 1})
            with connection.cursor() as cursor:
                cursor.execute("LOCK TABLE django_outbox_outboxmessage IN EXCLUSIVE MODE")
            running(Relay(publisher_for=lambda alias: publisher))
            wait_until(lambda: "does not let the relay work" in caplog.text, "a claim was given up")
        wait_until(lambda: publisher.received, "the relay goes on")


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_bad_message_does_not_hold_up_its_neighbours(database, rabbitmq, settings):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange, "good.*")
    # It is not due again while this drain lasts, however busy the machine is.
    settings.OUTBOX = rabbitmq_outbox(rabbitmq.url, exchange, BACKOFF_BASE=3600)
    with transaction.atomic():
        for n in range(20):
            enqueue("bad.message" if n == 7 else "good.message", {"n": n})
    assert Relay().drain() == Totals(claimed=20, published=19, retried=1)
    assert rabbitmq.count(queue) == 19
    [bad] = OutboxMessage.objects.pending()
    assert (bad.topic, bad.attempts) == ("bad.message", 1)


def test_memory_stays_bounded_by_the_batch_and_not_by_the_backlog(database, outbox_settings):
    outbox_settings(BATCH_BYTES=1024 * 1024)
    with transaction.atomic():
        enqueue_many([Event("invoice.issued", {"text": "x" * 100_000}) for _ in range(200)])

    class Forgetting(ScriptedPublisher):
        def publish(self, messages):
            receipts = super().publish(messages)
            self.received.clear()
            return receipts

    publisher = Forgetting()
    tracemalloc.start()
    try:
        assert Relay(publisher_for=lambda alias: publisher).drain() == Totals(200, 200)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024, "twenty megabytes went through"
