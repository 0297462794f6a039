"""A relay says that it is there, and nothing depends on it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_outbox import enqueue
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import RelayProcess
from django_outbox.operations.prune import prune
from django_outbox.publishers.base import Outcome
from django_outbox.relay import presence
from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import Stop
from django_outbox.testing import ScriptedPublisher
from django_outbox.topics import TopicSelection
from tests.conftest import EVERY_DATABASE
from tests.support.threads import Worker, wait_until

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def relay_to(publisher, **options):
    return Relay(publisher_for=lambda alias: publisher, **options)


def send(count=1):
    with transaction.atomic():
        for number in range(count):
            enqueue("invoice.issued", {"n": number})


def the_row():
    return RelayProcess.objects.get()


@everywhere
def test_a_relay_is_alive_from_its_first_turn_until_it_stops(database):
    stop = Stop()
    publisher = ScriptedPublisher()
    working = Worker(relay_to(publisher, topics=TopicSelection.only(["invoice.*"])).run, stop)
    wait_until(RelayProcess.objects.alive().exists, "the relay has said that it lives")
    assert the_row().topics == "invoice.*"
    send()
    wait_until(lambda: publisher.received, "it has published")
    stop.set()
    working.result()
    row = the_row()
    assert not RelayProcess.objects.alive().exists()
    assert row.stopped_at is not None
    assert row.published == 1
    assert row.version


@everywhere
def test_its_sums_are_those_of_the_settles(database, outbox_settings):
    outbox_settings(MAX_ATTEMPTS=1)
    send(3)
    outcomes = iter([Outcome.CONFIRMED, Outcome.FAILED, Outcome.CONFIRMED])
    relay_to(ScriptedPublisher(lambda message: next(outcomes))).drain()
    row = the_row()
    assert (row.published, row.dead, row.failed, row.lost) == (2, 1, 0, 0)


def test_a_breaker_that_opens_and_closes_is_told_at_once(database):
    publisher = ScriptedPublisher()
    publisher.is_down = True
    stop = Stop()
    working = Worker(relay_to(publisher).run, stop)
    wait_until(RelayProcess.objects.alive().exists, "the relay has said that it lives")
    send()
    wait_until(lambda: the_row().breakers, "it has said that the broker is down")
    [outage] = the_row().breakers.values()
    assert outage["reason"] == "scripted"
    assert outage["since"]
    publisher.is_down = False
    wait_until(lambda: not the_row().breakers, "it has said that the broker is back")
    stop.set()
    working.result()


@everywhere
def test_a_process_of_the_same_name_starts_anew(database):
    relay_to(ScriptedPublisher()).drain()
    RelayProcess.objects.update(
        started_at=DatabaseNow() - timedelta(days=2), published=17, topics="other.#"
    )
    relay_to(ScriptedPublisher()).drain()
    row = the_row()
    assert (row.published, row.topics) == (0, "#")
    assert row.seen_at - row.started_at < timedelta(hours=1)


def test_it_is_said_every_few_seconds_and_not_at_every_turn(database, monkeypatch):
    monkeypatch.setattr(presence, "INTERVAL", 3600)
    relay = relay_to(ScriptedPublisher())
    statements = []

    def watch(execute, sql, params, many, context):
        statements.extend([sql] if "relayprocess" in sql else [])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        send(5)
        relay.drain()
    assert len(statements) == 2, "once at the beginning, once at the end"


def test_a_relay_that_sleeps_for_long_still_says_that_it_lives(
    database, outbox_settings, monkeypatch
):
    monkeypatch.setattr(presence, "INTERVAL", 0.2)
    outbox_settings(POLL_INTERVAL=(3600, 3600))
    stop = Stop()
    working = Worker(relay_to(ScriptedPublisher()).run, stop)
    wait_until(RelayProcess.objects.alive().exists, "the relay has said that it lives")
    first = the_row().seen_at
    wait_until(lambda: the_row().seen_at > first, "it has said so again")
    stop.set()
    working.result()


@everywhere
def test_a_relay_works_where_it_cannot_say_that_it_is_there(database):
    """Before the migration that brings the table has run, for one."""
    table, aside = "django_outbox_relayprocess", "relayprocess_aside"
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {aside}")
    try:
        send()
        publisher = ScriptedPublisher()
        assert relay_to(publisher).drain().published == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {aside} RENAME TO {table}")


def test_inside_a_transaction_of_a_test_nothing_is_said(database):
    with transaction.atomic():
        enqueue("invoice.issued", {})
        assert relay_to(ScriptedPublisher()).drain().published == 1
    assert not RelayProcess.objects.exists()


@everywhere
def test_relays_that_were_not_seen_for_a_day_are_pruned(database):
    for name, hours in (("old:1", 25), ("new:1", 23)):
        made = RelayProcess.objects.create(name=name)
        RelayProcess.objects.filter(pk=made.pk).update(
            seen_at=DatabaseNow() - timedelta(hours=hours)
        )
    assert prune().relays == 1
    assert the_row().name == "new:1"
