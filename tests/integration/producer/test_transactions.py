"""Event and business change: both exist or neither does."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_outbox import Event, enqueue, enqueue_many
from django_outbox.exceptions import NotInTransaction
from django_outbox.models import OutboxMessage
from tests.conftest import EVERY_DATABASE
from tests.testapp.models import Invoice

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


class Refused(Exception):
    """The business changes its mind."""


def topics():
    return list(OutboxMessage.objects.order_by("id").values_list("topic", flat=True))


def issue(fails=False):
    Invoice.objects.create(number="2026-1")
    enqueue("invoice.issued", {})
    if fails:
        raise Refused


def issuing_view(request):
    issue(fails="fail" in request.GET)
    return HttpResponse("ok")


urlpatterns = [path("issue/", issuing_view)]


@everywhere
def test_a_committed_transaction_leaves_both(database):
    with transaction.atomic():
        issue()
    connections["default"].close()
    assert topics() == ["invoice.issued"]
    assert Invoice.objects.count() == 1


@everywhere
def test_a_rolled_back_transaction_leaves_neither(database):
    with pytest.raises(Refused), transaction.atomic():
        issue(fails=True)
    assert topics() == []
    assert not Invoice.objects.exists()


@everywhere
def test_a_rolled_back_savepoint_takes_its_events_along_and_no_others(database):
    with transaction.atomic():
        enqueue("before.savepoint", {})
        with pytest.raises(Refused), transaction.atomic():
            issue(fails=True)
        enqueue("after.savepoint", {})
    assert topics() == ["before.savepoint", "after.savepoint"]
    assert not Invoice.objects.exists()


@everywhere
def test_a_lost_connection_leaves_neither(database):
    def die():
        with transaction.atomic():
            issue()
            connections["default"].connection.close()  # as if the process had died
            Invoice.objects.count()

    with pytest.raises(Exception):  # noqa: B017, PT011 - each driver has its own
        die()
    connections["default"].close()
    assert topics() == []


@everywhere
def test_nobody_sees_an_event_before_its_transaction_commits(database):
    seen = []

    def look():
        seen.append(topics())
        connections.close_all()

    with transaction.atomic():
        issue()
        other = threading.Thread(target=look)
        other.start()
        other.join()
    assert seen == [[]]
    assert topics() == ["invoice.issued"]


@everywhere
def test_autocommit_is_refused(database, django_assert_num_queries):
    with (
        django_assert_num_queries(0),
        pytest.raises(NotInTransaction, match="in autocommit mode") as one,
    ):
        enqueue("invoice.issued", {})
    with pytest.raises(NotInTransaction, match="in autocommit mode"):
        enqueue_many([Event("invoice.issued", {})])
    assert "'default'" in str(one.value)
    assert topics() == []


@everywhere
def test_an_on_commit_callback_is_refused_and_told_apart(database):
    errors = []

    def announce():
        with pytest.raises(NotInTransaction) as refused:
            enqueue("invoice.issued", {})
        errors.append(str(refused.value))

    with transaction.atomic():
        transaction.on_commit(announce)
    assert "from an on_commit callback" in errors[0]
    assert topics() == []


def test_a_callback_that_failed_does_not_colour_what_comes_after(database):
    def fail():
        raise Refused

    with pytest.raises(Refused), transaction.atomic():
        transaction.on_commit(fail)
    with pytest.raises(NotInTransaction, match="in autocommit mode"):
        enqueue("invoice.issued", {})


def test_a_callback_may_open_a_transaction_of_its_own(database):
    def announce():
        with transaction.atomic():
            enqueue("invoice.announced", {})

    with transaction.atomic():
        transaction.on_commit(announce)
    assert topics() == ["invoice.announced"]


@everywhere
def test_a_durable_transaction_is_one(database):
    with transaction.atomic(durable=True):
        issue()
    assert topics() == ["invoice.issued"]


@everywhere
def test_a_transaction_managed_by_hand_is_one(database):
    transaction.set_autocommit(False)
    try:
        issue()
        transaction.rollback()
        enqueue("after.rollback", {})
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert topics() == ["after.rollback"]


@pytest.fixture
def atomic_requests(database):
    settings = connections["default"].settings_dict
    settings["ATOMIC_REQUESTS"] = True
    yield
    settings["ATOMIC_REQUESTS"] = False


@everywhere
@override_settings(ROOT_URLCONF=__name__)
def test_atomic_requests_are_the_transaction_of_a_view(database, atomic_requests):
    client = Client(raise_request_exception=False)
    assert client.get("/issue/").status_code == 200
    assert topics() == ["invoice.issued"]
    assert client.get("/issue/?fail").status_code == 500
    assert topics() == ["invoice.issued"]
    assert Invoice.objects.count() == 1


@override_settings(ROOT_URLCONF=__name__)
def test_a_view_without_a_transaction_is_refused(database):
    with pytest.raises(NotInTransaction):
        Client().get("/issue/")
    assert topics() == []


def test_a_coroutine_is_told_how_to_enqueue(database):
    async def view():
        enqueue("invoice.issued", {})

    with pytest.raises(SynchronousOnlyOperation, match="sync_to_async"):
        asyncio.run(view())


def test_a_coroutine_enqueues_through_a_synchronous_function(database):
    @sync_to_async
    def write():
        with transaction.atomic():
            issue()
        connections.close_all()  # those of the thread that asgiref runs this in

    asyncio.run(write())
    assert topics() == ["invoice.issued"]


def test_a_broken_transaction_stays_broken(database):
    """After a database error Django refuses every query until the block ends: this one as well."""
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            enqueue("invoice.issued", {})


class OutboxOnSqlite:
    """Writes the outbox beside the invoices, to another alias than default."""

    def db_for_write(self, model, **hints):
        return "sqlite" if model._meta.label in ("testapp.Invoice", _OUTBOX) else None

    db_for_read = db_for_write


_OUTBOX = "django_outbox.OutboxMessage"


@pytest.fixture
def routed(database, django_db_blocker):
    """Invoices and outbox on SQLite, everything else on default."""
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.OutboxOnSqlite"]):
        yield
        OutboxMessage.objects.all().delete()
        Invoice.objects.all().delete()
        connections["sqlite"].close()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_transaction_must_be_that_of_the_routed_database(routed):
    with transaction.atomic(), pytest.raises(NotInTransaction, match="'sqlite'"):
        enqueue("invoice.issued", {})
    with transaction.atomic(using="sqlite"):
        issue()
    with pytest.raises(Refused), transaction.atomic(using="sqlite"):
        issue(fails=True)
    assert topics() == ["invoice.issued"]
    assert OutboxMessage.objects.using("default").count() == 0
    assert OutboxMessage.objects.get()._state.db == "sqlite"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_the_setting_names_the_database_where_no_router_does(database, outbox_settings):
    outbox_settings(DATABASE="sqlite")
    with transaction.atomic(), pytest.raises(NotInTransaction, match="'sqlite'"):
        enqueue("invoice.issued", {})
    with transaction.atomic(using="sqlite"):
        written = enqueue("invoice.issued", {})
        assert written._state.db == "sqlite"
        assert OutboxMessage.objects.using("sqlite").get() == written
        transaction.set_rollback(True, using="sqlite")
    connections["sqlite"].close()
