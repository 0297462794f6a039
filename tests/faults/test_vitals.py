"""What watches a relay or a consumer is told the truth: systemd, the files of probes, and Prometheus."""

from __future__ import annotations

import signal
import socket
from typing import Any
from urllib.request import urlopen

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction

from django_outbox import enqueue
from django_outbox.models import OutboxMessage
from django_outbox.publishers.registry import publisher_for
from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import Stop
from django_outbox.relay.vitals import Condition, ReadinessFile
from tests.support.messages import received
from tests.support.outages import database_away
from tests.support.plants import plant
from tests.support.relay_children import rabbitmq_outbox, relay_process
from tests.support.threads import Worker, wait_until
from tests.support.workers import workers

__all__ = ["plant", "workers"]


def enqueued(count: int = 1) -> None:
    with transaction.atomic():
        for n in range(count):
            enqueue("invoice.issued", {"n": n})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_the_relays_connection() -> None:
    """The server ends every connection of this database but the one that says so."""
    with connections["postgresql"].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    connections["postgresql"].close()


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def hear_until(manager: socket.socket, word: str) -> str:
    heard = ""
    while word not in heard:
        heard += manager.recv(4096).decode() + "\n"
    return heard


def test_a_relay_process_tells_systemd_probes_and_prometheus_how_it_is(
    database, rabbitmq, tmp_path, monkeypatch
):
    exchange = rabbitmq.exchange()
    queue = rabbitmq.queue(exchange)
    alive, ready, port = tmp_path / "alive", tmp_path / "ready", free_port()
    with rabbitmq.proxy() as proxy, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "120000000")
        outbox = rabbitmq_outbox(rabbitmq.through(proxy), exchange, BREAKER_CAP=0.5)
        arguments = ["--liveness-file", str(alive), "--readiness-file", str(ready)]
        with relay_process(outbox, *arguments, "--metrics-port", str(port)) as relay:
            assert "STATUS=At work.\nWATCHDOG=1" in hear_until(manager, "READY=1")
            wait_until(ready.exists, "it is ready")
            enqueued()
            wait_until(lambda: rabbitmq.count(queue) == 1, "it publishes")
            confirmed = 'receipts_total{outcome="confirmed",publisher="default"} 1.0'
            wait_until(lambda: confirmed in scrape(port), "the confirm is counted", every=0.1)
            assert "django_outbox_relays_alive 1.0" in scrape(port)
            proxy.refuse()
            enqueued()
            hear_until(manager, "STATUS=Waiting for the broker of 'default'.")
            wait_until(lambda: not ready.exists(), "it is not ready")
            alive.unlink()
            wait_until(alive.exists, "its loop goes round")
            proxy.accept()
            wait_until(ready.exists, "it is ready again")
            relay.signal(signal.SIGTERM)
            assert relay.wait() == 0
            hear_until(manager, "STOPPING=1")
    assert not alive.exists()
    assert not ready.exists()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_relay_without_its_database_is_alive_and_not_ready(database, settings, tmp_path):
    conditions: list[Condition] = []
    ready = ReadinessFile(tmp_path / "ready", {"default": publisher_for("default")})

    def watch(condition: Condition) -> None:
        conditions.append(condition)
        ready(condition)

    stop = Stop()
    relay = Worker(Relay(watcher=watch).run, stop)
    wait_until((tmp_path / "ready").exists, "it is ready")
    with database_away():
        end_the_relays_connection()
        wait_until(lambda: not conditions[-1].database_answers, "it misses the database")
        wait_until(lambda: not (tmp_path / "ready").exists(), "it is not ready")
        seen = len(conditions)
        wait_until(lambda: len(conditions) > seen, "its loop goes round")
    wait_until((tmp_path / "ready").exists, "it is ready again")
    enqueued()
    wait_until(lambda: OutboxMessage.objects.published().count() == 1, "it publishes")
    stop.set()
    relay.result()
    assert conditions[-1] == Condition(is_stopping=True)


def test_an_idle_relay_notices_that_its_broker_is_gone(
    database, rabbitmq, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr("django_outbox.relay.vitals.PROBE_INTERVAL", 0.2)
    exchange = rabbitmq.exchange()
    with rabbitmq.proxy() as proxy:
        settings.OUTBOX = rabbitmq_outbox(rabbitmq.through(proxy), exchange)
        ready = ReadinessFile(tmp_path / "ready", {"default": publisher_for("default")})
        stop = Stop()
        relay = Worker(Relay(watcher=ready).run, stop)
        wait_until((tmp_path / "ready").exists, "it is ready")
        proxy.refuse()
        wait_until(lambda: not (tmp_path / "ready").exists(), "it is not ready")
        proxy.accept()
        wait_until((tmp_path / "ready").exists, "it is ready again")
        stop.set()
        relay.result()


@pytest.mark.parametrize("host", ["not a host", "203.0.113.1"])
def test_a_metrics_address_that_cannot_be_had_is_an_error_that_names_it(database, host: Any):
    with pytest.raises(CommandError, match=f"cannot be served on {host}:"):
        call_command("outbox_relay", "--once", "--metrics-port", "0", "--metrics-host", host)


def test_a_consumer_process_says_that_it_lives_and_serves_its_metrics(
    database, plant, workers, tmp_path
):
    alive, port = tmp_path / "alive", free_port()
    consumer = workers.outbox_consume(
        plant.outbox,
        *("--queue", plant.queue, "--liveness-file", str(alive), "--metrics-port", str(port)),
    )
    consumer.wait_for_line("Connected to RabbitMQ")
    wait_until(alive.exists, "its loop goes round")
    message = received(body='{"amount": 1}')
    plant.publish(message)
    workers.diary.wait_for("handled", message.id)
    handled = 'outcome="handled"} 1.0'
    wait_until(lambda: handled in scrape(port), "the message is counted", every=0.1)
    assert consumer.stop() == 0
    assert not alive.exists()
