from __future__ import annotations

import datetime
import uuid

import pytest
from django.utils import timezone

from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.requeue import requeue
from django_outbox.operations.selection import every_message, id_chunks
from tests.conftest import EVERY_DATABASE

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
AN_HOUR = datetime.timedelta(hours=1)


def make(status=Status.DEAD, **fields):
    now = timezone.now()
    if status == Status.PUBLISHED:
        fields.setdefault("published_at", now)
    fields = {"attempts": 10, "last_error": "FAILED nack", **fields}
    return OutboxMessage.objects.create(
        message_id=uuid.uuid4(), topic="a.b", payload={}, status=status, **fields
    )


def leased(until):
    return {
        "status": Status.PENDING,
        "attempts": 1,
        "lease_token": uuid.uuid4(),
        "lease_expires_at": until,
    }


@everywhere
def test_a_dead_message_is_pending_again_and_due_now(database):
    dead = make(available_at=timezone.now() + AN_HOUR)
    assert requeue(every_message()).requeued == 1
    dead.refresh_from_db()
    assert (dead.status, dead.attempts) == (Status.PENDING, 0)
    assert dead.last_error == "FAILED nack"
    assert list(OutboxMessage.objects.due()) == [dead]


@everywhere
def test_what_is_in_flight_is_refused_and_counted(database):
    in_flight = make(**leased(timezone.now() + AN_HOUR))
    make()
    done = requeue(every_message())
    assert (done.requeued, done.in_flight, done.not_dead) == (1, 1, 0)
    before = in_flight.lease_token
    in_flight.refresh_from_db()
    assert (in_flight.lease_token, in_flight.attempts) == (before, 1)


@everywhere
def test_only_the_dead_are_requeued(database):
    kept = [make(status) for status in (Status.PENDING, Status.PUBLISHED, Status.DISCARDED)]
    kept.append(make(**leased(timezone.now() - AN_HOUR)))  # lapsed: the next claim takes it
    before = list(OutboxMessage.objects.order_by("id").values())
    done = requeue(every_message())
    assert (done.requeued, done.in_flight, done.not_dead) == (0, 0, len(kept))
    assert list(OutboxMessage.objects.order_by("id").values()) == before


@everywhere
def test_a_selection_is_requeued_in_chunks_and_nothing_else_is(database):
    chosen = [make() for _ in range(7)]
    other = make()
    done = requeue(every_message().exclude(pk=other.pk), chunk=3)
    assert done.requeued == 7
    assert set(OutboxMessage.objects.pending()) == set(chosen)
    assert list(OutboxMessage.objects.dead()) == [other]


def test_a_selection_that_shrinks_while_it_is_worked_on_loses_no_row(database):
    for _ in range(7):
        make()
    assert requeue(every_message().dead(), chunk=2).requeued == 7


def test_chunks_come_in_id_order_and_bounded(database):
    ids = [make().pk for _ in range(5)]
    assert list(id_chunks(every_message().order_by("-topic"), 2)) == [ids[:2], ids[2:4], ids[4:]]
    assert list(id_chunks(every_message().filter(pk=0))) == []


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_time_is_that_of_the_database(database):
    make()
    requeue(every_message())
    with database.connection.cursor() as cursor:
        cursor.execute(
            "SELECT statement_timestamp() - available_at FROM django_outbox_outboxmessage"
        )
        (age,) = cursor.fetchone()
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=1)
