"""outbox_requeue, outbox_discard and outbox_replay: which messages, how many, and what is said of it."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_outbox.management import selecting
from django_outbox.management.commands import outbox_requeue
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.requeue import requeue
from tests.support.stored import AN_HOUR, in_flight, stored

COMMANDS = ["outbox_requeue", "outbox_discard", "outbox_replay"]


def run(name, *arguments):
    out, err = StringIO(), StringIO()
    call_command(name, *arguments, stdout=out, stderr=err)
    return out.getvalue() + err.getvalue()


def statuses():
    return list(OutboxMessage.objects.order_by("id").values_list("status", flat=True))


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_filter_nothing_is_done_and_the_filters_are_named(database, name):
    stored(Status.DEAD)
    stored(Status.PUBLISHED)
    with pytest.raises(CommandError, match=r"Which messages\? Give a filter \(--topic, .*or --all"):
        run(name)
    assert statuses() == ["dead", "published"]


@pytest.mark.parametrize("name", COMMANDS)
def test_all_and_a_filter_contradict_each_other(database, name):
    with pytest.raises(CommandError, match="--all is for every message"):
        run(name, "--all", "--topic", "invoice.*")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_says_how_many_and_of_what_and_changes_nothing(database, name):
    for status in (Status.DEAD, Status.PUBLISHED):
        for topic in ("invoice.paid", "invoice.issued", "invoice.issued", "audit.seen"):
            stored(status, topic=topic, last_error="nack 17\ndiscarded: never mind")
    before = list(OutboxMessage.objects.order_by("id").values())
    said = run(name, "--topic", "invoice.*", "--dry-run")
    assert "3 messages" in said
    assert "topic invoice.*" in said
    status = "published" if name == "outbox_replay" else "dead"
    assert [line.split() for line in said.splitlines()[1:]] == [
        ["2", status, "invoice.issued", "nack", "17"],
        ["1", status, "invoice.paid", "nack", "17"],
    ]
    assert list(OutboxMessage.objects.order_by("id").values()) == before


def test_dead_messages_are_requeued(database):
    stored(Status.DEAD, topic="a.b")
    stored(Status.DEAD)
    assert run("outbox_requeue", "--topic", "a.b") == "Requeued 1 message (dead, topic a.b).\n"
    assert statuses() == ["pending", "dead"]


def test_only_what_is_dead_is_discarded_unless_pending_is_asked_for(database):
    stored(Status.DEAD)
    stored()
    run("outbox_discard", "--all", "--reason", "merged")
    assert statuses() == ["discarded", "pending"]
    run("outbox_discard", "--all", "--status", "pending", "--status", "dead", "--reason", "merged")
    assert statuses() == ["discarded", "discarded"]
    assert OutboxMessage.objects.latest("id").last_error == "discarded: merged"


def test_published_messages_are_replayed(database):
    row = stored(Status.PUBLISHED)
    assert "Replayed 1 message" in run("outbox_replay", "--id", str(row.message_id))
    assert statuses() == ["pending"]


def test_messages_are_chosen_by_aggregate_error_time_and_id(database):
    now = timezone.now()
    rows = [
        stored(Status.DEAD, aggregate=("invoice", "7:8")),
        stored(Status.DEAD, last_error="REJECTED: no queue"),
        stored(Status.DEAD, created_at=now - 3 * AN_HOUR),
        stored(Status.DEAD, correlation_id="c-1"),
        stored(Status.DEAD),
    ]
    kept = stored(Status.DEAD)
    run("outbox_requeue", "--aggregate", "invoice:7:8")
    run("outbox_requeue", "--error", "no QUEUE")
    run("outbox_requeue", "--since", "4h", "--until", (now - 2 * AN_HOUR).isoformat())
    run("outbox_requeue", "--correlation-id", "c-1")
    run("outbox_requeue", "--id", str(rows[4].message_id))
    assert list(OutboxMessage.objects.dead()) == [kept]


def test_what_is_in_flight_is_left_alone_and_the_exit_code_says_so(database):
    in_flight()
    stored()
    with pytest.raises(CommandError, match="1 message in flight and left alone") as raised:
        run("outbox_discard", "--all", "--status", "pending")
    assert raised.value.returncode == 3
    assert statuses() == ["pending", "discarded"]


def test_where_nothing_matches_that_is_said(database):
    assert run("outbox_requeue", "--error", "nack").startswith("Nothing to requeue: no message")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--error", ""], "--error is empty"),
        (["--topic", "a.b", "--error", " "], "--error is empty"),
        (["--topic", "a.b", "--correlation-id", ""], "--correlation-id is empty"),
        (["--topic", "a.b", "--aggregate", ""], "--aggregate: it is empty"),
        (["--aggregate", ":"], "--aggregate: ':' has no id"),
        (["--aggregate", "invoice:"], "--aggregate: 'invoice:' has no id"),
    ],
)
def test_a_filter_with_nothing_in_it_widens_nothing(arguments, said, database):
    stored(Status.DEAD, topic="a.b")
    stored(Status.DEAD, aggregate=("invoice", "7"))
    with pytest.raises(CommandError, match=said):
        run("outbox_discard", *arguments)
    assert statuses() == ["dead", "dead"]


def test_a_topic_that_is_no_pattern_is_refused(database):
    with pytest.raises(CommandError, match="--topic: 'in\\*' is not a topic pattern"):
        run("outbox_requeue", "--topic", "in*")


def test_what_was_done_before_an_interruption_stays_done(database, monkeypatch):
    for _ in range(3):
        stored(Status.DEAD)

    def interrupted(messages, *, progress):
        return requeue(messages, chunk=2, progress=stop)

    def stop(seen):
        raise KeyboardInterrupt

    monkeypatch.setattr(outbox_requeue, "requeue", interrupted)
    with pytest.raises(CommandError, match="What was done stays done") as raised:
        run("outbox_requeue", "--all")
    assert raised.value.returncode == 130
    assert statuses() == ["pending", "pending", "dead"]


def test_progress_is_told_now_and_then_and_not_at_all_where_quiet(database, monkeypatch):
    monkeypatch.setattr(selecting, "_PROGRESS", 0)
    stored(Status.DEAD)
    assert "1 message so far." in run("outbox_requeue", "--all")
    stored(Status.DEAD)
    assert "so far" not in run("outbox_requeue", "--all", "--verbosity", "0")
