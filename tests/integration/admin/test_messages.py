from __future__ import annotations

import datetime
import uuid

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_outbox.admin.paging import COUNTED, CappedPaginator
from django_outbox.models import OutboxMessage, Status
from tests.conftest import EVERY_DATABASE
from tests.support import services

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
LIST = "/admin/django_outbox/outboxmessage/"


def make(status=Status.DEAD, **fields):
    published_at = timezone.now() if status == Status.PUBLISHED else None
    fields = {"payload": {"name": "Jane Doe"}, "headers": {"tenant": "acme"}, **fields}
    return OutboxMessage.objects.create(
        message_id=uuid.uuid4(),
        topic=f"invoice.{status}",
        status=status,
        published_at=published_at,
        **fields,
    )


def in_flight():
    later = timezone.now() + datetime.timedelta(hours=1)
    return make(Status.PENDING, attempts=1, lease_token=uuid.uuid4(), lease_expires_at=later)


def user(*permissions):
    found = User.objects.create_user(f"user-{uuid.uuid4()}", is_staff=True)
    found.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return found


@pytest.fixture
def browse(database):
    """A browser logged in as somebody with these permissions on messages."""

    def as_somebody(*permissions):
        client = Client()
        client.force_login(user(*[f"{name}_outboxmessage" for name in permissions]))
        return client

    return as_somebody


def requeue(client, *messages, **more):
    chosen = [message.pk for message in messages]
    form = {"action": "requeue_selected", "_selected_action": chosen, **more}
    return client.post(LIST, form, follow=True)


@everywhere
def test_the_list_shows_messages_by_status(browse):
    for status in Status:
        make(status)
    client = browse("view")
    everything = client.get(LIST).content.decode()
    assert all(f"invoice.{status}" in everything for status in Status)
    dead = client.get(f"{LIST}?status__exact=dead").content.decode()
    assert "invoice.dead" in dead
    assert "invoice.pending" not in dead


@everywhere
def test_the_list_fetches_no_payload_and_counts_no_whole_table(browse):
    make()
    client = browse("view")
    with CaptureQueriesContext(connection) as queries:
        assert client.get(LIST).status_code == 200
    ours = [q["sql"] for q in queries if "django_outbox_outboxmessage" in q["sql"]]
    assert len(ours) == 2
    assert not any("payload" in sql or "headers" in sql for sql in ours)
    counts = [sql for sql in ours if "COUNT(" in sql]
    assert len(counts) == 1
    assert f"LIMIT {COUNTED}" in counts[0]


def test_a_table_beyond_the_cap_is_counted_up_to_it(database, monkeypatch):
    for _ in range(5):
        make()
    monkeypatch.setattr("django_outbox.admin.paging.COUNTED", 3)
    assert CappedPaginator(OutboxMessage.objects.order_by("-id"), 2).num_pages == 2


@everywhere
def test_a_message_is_shown_without_its_payload(browse):
    message = make(last_error="REJECTED unroutable")
    page = browse("view").get(f"{LIST}{message.pk}/change/").content.decode()
    assert str(message.message_id) in page
    assert "REJECTED unroutable" in page
    assert "Jane" not in page
    assert "acme" not in page


@everywhere
def test_a_message_is_found_by_its_id(browse):
    wanted, other = make(), make(Status.PENDING)
    client = browse("view")
    found = client.get(LIST, {"q": str(wanted.message_id)}).content.decode()
    assert "invoice.dead" in found
    assert str(other.message_id) not in found
    assert client.get(LIST, {"q": "no-uuid"}).status_code == 200


@pytest.mark.parametrize("permissions", [("view",), ("view", "change", "delete", "add", "requeue")])
def test_nobody_edits_a_message(permissions, browse):
    message = make()
    client = browse(*permissions)
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{message.pk}/change/", {"topic": "other"}).status_code == 403
    assert client.post(f"{LIST}{message.pk}/delete/", {"post": "yes"}).status_code == 403
    form = {"action": "delete_selected", "_selected_action": [message.pk], "post": "yes"}
    client.post(LIST, form)
    message.refresh_from_db()
    assert message.topic == "invoice.dead"


def test_who_may_not_see_messages_does_not(browse):
    assert browse().get(LIST).status_code == 403
    assert browse("change").get(LIST).status_code == 403


@everywhere
def test_dead_messages_are_requeued_and_the_rest_is_left_alone(browse):
    dead, published, flying = make(attempts=10), make(Status.PUBLISHED), in_flight()
    page = requeue(browse("view", "requeue"), dead, published, flying).content.decode()
    assert "1 message requeued. 1 is in flight and was left alone. 1 was not dead." in page
    for message in (dead, published, flying):
        message.refresh_from_db()
    assert (dead.status, dead.attempts) == (Status.PENDING, 0)
    assert published.status == Status.PUBLISHED
    assert (flying.attempts, flying.lease_token is None) == (1, False)


def test_everything_that_a_filter_shows_can_be_requeued_at_once(browse):
    dead = [make() for _ in range(3)]
    make(Status.DISCARDED)
    client = browse("view", "requeue")
    form = {"action": "requeue_selected", "_selected_action": [dead[0].pk], "select_across": "1"}
    client.post(f"{LIST}?status__exact=dead", form)
    assert OutboxMessage.objects.pending().count() == 3
    assert OutboxMessage.objects.discarded().count() == 1


def test_requeueing_needs_its_own_permission(browse):
    dead = make()
    client = browse("view", "change", "delete")
    assert "requeue_selected" not in client.get(LIST).content.decode()
    requeue(client, dead)
    dead.refresh_from_db()
    assert dead.status == Status.DEAD


def test_the_list_reads_where_the_outbox_is_written(browse, outbox_settings):
    """A replica would show what was dead a while ago."""
    services.require(services.POSTGRESQL_URL, "PostgreSQL")  # beside SQLite: two databases
    message = make()
    client = browse("view")
    outbox_settings(DATABASE="sqlite")
    assert str(message.message_id) not in client.get(LIST).content.decode()
