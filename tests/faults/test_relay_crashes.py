"""Relays that are killed, stopped and started again: every message arrives, and order holds."""

import random
import signal
import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from django_outbox import enqueue
from django_outbox.models import OutboxMessage, Status
from django_outbox.producer import Event, enqueue_many
from django_outbox.publishers.base import Outcome
from django_outbox.relay.loop import Relay
from django_outbox.relay.settle import Totals
from django_outbox.relay.shutdown import EXIT_AT_ONCE, Stop
from django_outbox.testing import ScriptedPublisher
from tests.conftest import EVERY_DATABASE
from tests.support.relay_children import rabbitmq_outbox, relay_process
from tests.support.threads import Worker, wait_until
from tests.support.workers import workers

__all__ = ["workers"]


def enqueued(count, aggregates=0):
    with transaction.atomic():
        return enqueue_many(
            [
                Event(
                    "invoice.issued",
                    {"n": n},
                    aggregate=("t", str(n % aggregates)) if aggregates else None,
                )
                for n in range(count)
            ]
        )


def in_flight():
    return OutboxMessage.objects.in_flight().count()


@pytest.mark.parametrize(
    "database", ["postgresql", pytest.param("mysql", marks=pytest.mark.deep)], indirect=True
)
def test_a_relay_killed_in_the_middle_of_a_window_loses_nothing(database, rabbitmq, settings):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    sent = enqueued(2000)
    with rabbitmq.proxy() as proxy:
        # After some hundred messages the broker's answers stay away, with windows under way.
        outbox = rabbitmq_outbox(
            rabbitmq.through(proxy),
            exchange,
            BATCH_SIZE=200,
            LEASE=4,
            CONFIRM_TIMEOUT=0.5,
            stack_timeout=0.5,
        )
        with relay_process(outbox) as relay:
            wait_until(lambda: rabbitmq.count(queue) > 300, "some messages are in the queue")
            proxy.stall()
            wait_until(in_flight, "some are in flight")
            relay.kill()
    unsettled = OutboxMessage.objects.pending().filter(attempts__gt=0).count()
    settings.OUTBOX = rabbitmq_outbox(rabbitmq.url, exchange)
    wait_until(lambda: not in_flight(), "the lease of the dead relay is over", every=0.2)
    assert Relay().drain().published >= unsettled
    assert not OutboxMessage.objects.exclude(status=Status.PUBLISHED).exists()
    arrived = Counter(rabbitmq.ids(queue))
    assert set(arrived) == {row.message_id for row in sent}
    twice = sum(count - 1 for count in arrived.values())
    assert twice <= unsettled


def test_a_relay_that_is_stopped_exits_with_0_and_leaves_no_lease(database, rabbitmq, tmp_path):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    sent = enqueued(3000)
    alive = tmp_path / "alive"
    outbox = rabbitmq_outbox(rabbitmq.url, exchange, BATCH_SIZE=50)
    with relay_process(outbox, "--liveness-file", str(alive)) as relay:
        wait_until(lambda: rabbitmq.count(queue) > 100, "it is at work")
        wait_until(alive.exists, "it says that it is alive")
        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0
    assert not alive.exists()
    assert not OutboxMessage.objects.exclude(lease_token=None).exists()
    published = OutboxMessage.objects.published().count()
    assert rabbitmq.count(queue) == published
    assert OutboxMessage.objects.pending().count() == len(sent) - published
    assert set(OutboxMessage.objects.pending().values_list("attempts", flat=True)) <= {0}


def test_a_second_signal_ends_the_relay_at_once(database, rabbitmq, workers):
    enqueued(10)
    with rabbitmq.proxy() as proxy:
        proxy.stall()
        relay = workers.outbox_relay(
            rabbitmq_outbox(
                rabbitmq.through(proxy),
                rabbitmq.exchange(),
                SHUTDOWN_TIMEOUT=300,
            )
        )
        wait_until(lambda: in_flight() and proxy.accepted, "it waits for the broker")
        relay.signal(signal.SIGTERM)
        relay.wait_for_line("Stopping: SIGTERM")
        relay.signal(signal.SIGINT)
        assert relay.wait() == EXIT_AT_ONCE
    assert in_flight(), "nothing was settled any more"


@pytest.mark.parametrize(("bound", "code"), [(True, 0), (False, 1)])
def test_once_drains_and_says_by_its_exit_code_whether_all_went_out(
    database, rabbitmq, bound, code
):
    exchange = rabbitmq.exchange()
    if bound:
        queue = rabbitmq.queue(exchange)
    sent = enqueued(700)
    with relay_process(rabbitmq_outbox(rabbitmq.url, exchange), "--once") as relay:
        assert relay.wait() == code
    if bound:
        assert len(set(rabbitmq.ids(queue))) == len(sent)
    else:
        reasons = set(OutboxMessage.objects.values_list("last_error", flat=True))
        assert reasons == {"no queue is bound for its topic: 312 NO_ROUTE"}


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_four_relays_and_failing_publishes_keep_every_aggregate_in_order(database, outbox_settings):
    outbox_settings(
        BATCH_SIZE=20,
        BACKOFF_BASE=0.01,
        BACKOFF_CAP=0.02,
        MAX_ATTEMPTS=1000,
        POLL_INTERVAL=(0.005, 0.02),
    )
    count = 400 if database.vendor == "sqlite" else 1000
    rows = enqueued(count, aggregates=20)
    confirmed, lock = [], threading.Lock()

    class Unreliable(ScriptedPublisher):
        supports_concurrent_publish = True

        def __init__(self, seed):
            super().__init__(self.one_in_ten_fails)
            self.random = random.Random(seed)

        def one_in_ten_fails(self, message):
            with lock:
                if self.random.random() < 0.1:
                    return Outcome.FAILED
                confirmed.append((message.aggregate_id, message.payload["n"]))
                return Outcome.CONFIRMED

    stop = Stop()
    publishers = [Unreliable(seed) for seed in range(4)]
    relays = [
        Worker(Relay(publisher_for=lambda alias, p=publisher: p).run, stop)
        for publisher in publishers
    ]
    wait_until(lambda: OutboxMessage.objects.published().count() == count, "all is sent", every=0.2)
    stop.set()
    for relay in relays:
        relay.result()
    assert sorted(n for _, n in confirmed) == list(range(len(rows))), "each exactly once"
    for aggregate in range(20):
        of_this = [n for a, n in confirmed if a == str(aggregate)]
        assert of_this == sorted(of_this)
    assert sum(bool(publisher.received) for publisher in publishers) > 1, "they shared the work"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_long_queue_behind_a_waiting_head_does_not_hold_back_others(database):
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO django_outbox_outboxmessage
                (message_id, topic, schema_version, aggregate_type, aggregate_id, payload, headers,
                 last_error)
            SELECT gen_random_uuid(), 'invoice.issued', 1, 't', 'long', '{"n": 1}', '{}', ''
            FROM generate_series(1, 20000)
            """
        )
        head = OutboxMessage.objects.order_by("id").first()
        OutboxMessage.objects.filter(pk=head.pk).update(
            attempts=1, available_at=Now() + timedelta(hours=1)
        )
        cursor.execute("ANALYZE django_outbox_outboxmessage")
    with transaction.atomic():
        for n in range(50):
            enqueue("invoice.issued", {"n": n}, aggregate=("t", f"other {n}"))
    publisher = ScriptedPublisher()
    assert Relay(publisher_for=lambda alias: publisher).run_once() == Totals(50, 50)
    assert {message.aggregate_id for message in publisher.received} == {
        f"other {n}" for n in range(50)
    }
