"""The metrics say what happened, and a scrape harms neither the table nor itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from urllib.request import urlopen

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import REGISTRY, CollectorRegistry

from django_outbox import signals
from django_outbox.consumers.delivery import deliver, deliver_batch
from django_outbox.consumers.registry import Consumer
from django_outbox.contrib import prometheus as outbox_metrics
from django_outbox.contrib.prometheus import OutboxCollector
from django_outbox.contrib.prometheus.apps import PrometheusConfig
from django_outbox.contrib.prometheus.labels import topic_label
from django_outbox.contrib.prometheus.server import metrics_server
from django_outbox.event_types.registry import event_type, forget_event_type
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage
from django_outbox.operations.prune import prune
from tests.conftest import EVERY_DATABASE
from tests.support.journeys import consume, produce, relay_all
from tests.support.messages import received
from tests.support.outages import database_away
from tests.support.plants import plant
from tests.support.threads import elsewhere

__all__ = ["plant"]


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    made = CollectorRegistry()
    outbox_metrics.install(made)
    yield made
    outbox_metrics.uninstall(made)
    assert list(made.collect()) == []


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"django_outbox_{name}", labels)


def test_the_way_of_a_message_through_a_broker_is_counted_and_timed(
    database, plant, settings, registry
):
    settings.OUTBOX = plant.outbox
    produce()
    relay_all()
    consume(plant, Consumer(name="ledger", patterns=("#",), handler=id))
    assert value(registry, "enqueued_total", topic="#") == 1
    assert value(registry, "receipts_total", publisher="default", outcome="confirmed") == 1
    assert value(registry, "published_total", topic="#") == 1
    assert value(registry, "publish_seconds_count", publisher="default") == 1
    assert value(registry, "end_to_end_seconds_count", topic="#") == 1
    assert value(registry, "consumed_total", consumer="ledger", outcome="handled") == 1
    assert value(registry, "handling_seconds_count", consumer="ledger") == 1
    assert value(registry, "delivery_seconds_count", consumer="ledger") == 1


def test_a_message_that_no_queue_takes_is_returned_retried_and_dead(
    database, rabbitmq, settings, registry
):
    settings.OUTBOX = {
        "PUBLISHERS": {
            "default": {
                "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
                "URL": rabbitmq.url,
                "EXCHANGE": rabbitmq.exchange(),
            }
        },
        "MAX_ATTEMPTS": 2,
        "BACKOFF_BASE": 0.001,
    }
    produce()
    while not OutboxMessage.objects.dead().exists():
        relay_all()
    assert value(registry, "receipts_total", publisher="default", outcome="returned") == 2
    assert value(registry, "retried_total", topic="#", cause="returned") == 1
    assert value(registry, "dead_total", topic="#", cause="returned") == 1


def test_a_full_queue_is_nacked(database, rabbitmq, settings, registry):
    exchange = rabbitmq.exchange()
    rabbitmq.queue(exchange, max_length=1, overflow="reject-publish")
    settings.OUTBOX = {
        "PUBLISHERS": {
            "default": {
                "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
                "URL": rabbitmq.url,
                "EXCHANGE": exchange,
            }
        }
    }
    for _ in range(3):
        produce()
    relay_all()
    nacked = value(registry, "retried_total", topic="#", cause="nacked")
    assert nacked
    assert value(registry, "receipts_total", publisher="default", outcome="nacked") == nacked


def test_what_consumers_do_is_counted_by_outcome(database, registry):
    def handle(message: Message) -> None:
        if message.body == '"bad"':
            raise ValueError

    consumer = Consumer(name="ledger", handler=handle)
    message = received()
    for each in (message, message, received(body='"bad"')):
        deliver(consumer, each)
    assert value(registry, "consumed_total", consumer="ledger", outcome="handled") == 1
    assert value(registry, "consumed_total", consumer="ledger", outcome="duplicate") == 1
    assert value(registry, "consumed_total", consumer="ledger", outcome="failed") == 1


def test_in_a_batch_only_the_message_at_fault_has_failed(database, registry):
    def handle(messages: list[Message]) -> None:
        if any(each.body == '"bad"' for each in messages):
            raise ValueError

    batch = [received(), received(body='"bad"'), received(), received()]
    deliver_batch(Consumer(name="ledger", handler=handle, batch=10), batch)
    assert value(registry, "consumed_total", consumer="ledger", outcome="handled") == 3
    assert value(registry, "consumed_total", consumer="ledger", outcome="failed") == 1


def test_leases_breakers_and_pruning_are_counted(database, registry):
    signals.tell_lease_lost([received(), received()])
    signals.tell_breaker_opened("default", "connection refused")
    assert value(registry, "leases_lost_total") == 2
    assert value(registry, "breaker_open", publisher="default") == 1
    signals.tell_breaker_closed("default", timedelta(seconds=1))
    assert value(registry, "breaker_open", publisher="default") == 0
    long_ago = timezone.now() - timedelta(days=100)
    produce()
    OutboxMessage.objects.update(status="published", published_at=long_ago)
    prune()
    assert value(registry, "pruned_total", kind="published") == 1


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_a_scrape_shows_the_table_and_the_relays(database, registry):
    produce()
    produce(delay=timedelta(hours=1))
    produce()
    OutboxMessage.objects.filter(pk=produce().pk).update(status="dead")
    assert relay_all().published == 2
    produce()
    assert value(registry, "database_up") == 1
    assert value(registry, "messages", state="ready") == 1
    assert value(registry, "messages", state="scheduled") == 1
    assert value(registry, "messages", state="dead") == 1
    assert value(registry, "oldest_due_seconds") > 0
    assert value(registry, "relays_alive") == 0  # drain() has ended
    assert value(registry, "relay_breakers_open", publisher="default") == 0


def test_scrapes_in_a_row_look_at_the_database_once(database):
    collector = OutboxCollector(max_age=60)
    with CaptureQueriesContext(connections["default"]) as first:
        list(collector.collect())
    with CaptureQueriesContext(connections["default"]) as second:
        list(collector.collect())
    assert 0 < len(first) <= 10
    assert len(second) == 0


def test_registering_the_collector_looks_at_nothing(database):
    with CaptureQueriesContext(connections["default"]) as queries:
        CollectorRegistry(auto_describe=True).register(OutboxCollector())
    assert len(queries) == 0


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_without_a_database_the_other_metrics_are_served_and_it_comes_back(database, caplog):
    registry = CollectorRegistry()
    registry.register(OutboxCollector(max_age=0))
    outbox_metrics.install(registry, database=False)
    try:
        signals.tell_lease_lost([received()])
        caplog.clear()
        with database_away():
            for _ in range(2):
                assert value(registry, "database_up") == 0
            assert value(registry, "messages", state="ready") is None
            assert value(registry, "leases_lost_total") == 1
        assert len(caplog.records) == 1
        assert value(registry, "database_up") == 1
    finally:
        outbox_metrics.uninstall(registry)


def test_a_scrape_inside_a_request_that_failed_leaves_its_transaction_usable(database):
    collector = OutboxCollector(database="no such alias")
    with transaction.atomic():
        list(collector.collect())
        assert OutboxMessage.objects.count() == 0


def test_a_servers_thread_leaves_no_connection_behind(database):
    def scrape() -> bool:
        list(OutboxCollector().collect())
        return connections["default"].connection is None

    assert elsewhere(scrape).result(60)


def test_the_port_serves_what_the_default_registry_holds(database):
    try:
        with metrics_server("127.0.0.1", 0) as port:
            page = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        assert "django_outbox_database_up 1.0" in page
        assert "process_cpu_seconds_total" in page
    finally:
        outbox_metrics.uninstall()


def test_topics_are_called_by_their_event_type_or_their_route(outbox_settings):
    outbox_settings(ROUTES=[("invoice.*", {}), ("audit.#", {})])

    class Counted:
        """An event."""

        schema = {"type": "object"}

    event_type("invoice.counted")(Counted)
    try:
        assert topic_label("invoice.counted") == "invoice.counted"
        assert topic_label("invoice.made_up_at_run_time") == "invoice.*"
        assert topic_label("audit.of.7") == "audit.#"
        assert topic_label("elsewhere") == "other"
    finally:
        forget_event_type("invoice.counted", 1)


def test_installing_twice_counts_once(database, registry):
    outbox_metrics.install(registry)
    produce()
    assert value(registry, "enqueued_total", topic="#") == 1


def test_the_app_fills_the_default_registry():
    try:
        PrometheusConfig.create("django_outbox.contrib.prometheus").ready()
        assert "django_outbox_published" in REGISTRY._names_to_collectors
    finally:
        outbox_metrics.uninstall()
    assert "django_outbox_published" not in REGISTRY._names_to_collectors


def test_processes_that_share_a_directory_are_summed_up(tmp_path):
    script = (
        "import django; django.setup()\n"
        "from datetime import timedelta\n"
        "from prometheus_client import CollectorRegistry, generate_latest\n"
        "from prometheus_client.multiprocess import MultiProcessCollector\n"
        "from django_outbox import signals\n"
        "from django_outbox.contrib.prometheus import install\n"
        "install(database=False)\n"
        "signals.tell_breaker_opened('default', 'gone')\n"
        "signals.tell_pruned({'published': 2})\n"
        "registry = CollectorRegistry()\n"
        "MultiProcessCollector(registry)\n"
        "print(generate_latest(registry).decode())\n"
    )
    for expected in ("2.0", "4.0"):
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f'django_outbox_pruned_total{{kind="published"}} {expected}' in ran.stdout
        assert 'django_outbox_breaker_open{publisher="default"} 1.0' in ran.stdout
