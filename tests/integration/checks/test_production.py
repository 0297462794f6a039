"""What only shows where the service runs: settings for production, and the outbox at work."""

from __future__ import annotations

from datetime import timedelta

import pytest
from celery import Celery, current_app
from django.db import connections, transaction
from django.utils import timezone
from kombu import Exchange, Queue

from django_outbox import enqueue
from django_outbox.consumers.celery import ConsumerTask
from django_outbox.event_types.registry import event_type, forget_event_type
from django_outbox.models import OutboxMessage, RelayProcess
from tests.conftest import EVERY_DATABASE

RUNNING = {"deploy": True, "databases": ["default"]}


@pytest.fixture
def only(run_checks):
    """The messages with one of these ids."""
    return lambda *wanted, **options: [m for m in run_checks(**options) if m.id[14:] in wanted]


def test_rows_that_are_kept_for_ever_are_reported(outbox_settings, only):
    assert not only("W024", deploy=True)
    outbox_settings(RETENTION={"published": None, "processed": None})
    (message,) = only("W024", deploy=True)
    assert message.id == "django_outbox.W024"
    assert "published and processed" in message.msg
    assert not only("W024")


@pytest.mark.parametrize(
    ("backend", "found"),
    [("locmem.LocMemCache", 1), ("dummy.DummyCache", 1), ("redis.RedisCache", 0)],
)
def test_a_memory_that_consumers_do_not_share_is_reported(
    outbox_settings, settings, only, backend, found
):
    settings.CACHES = {"default": {"BACKEND": f"django.core.cache.backends.{backend}"}}
    assert not only("W026", deploy=True)
    outbox_settings(CONSUMERS={"SEEN_IN": "cache"})
    assert len(only("W026", deploy=True)) == found, "django_outbox.W026"


@pytest.fixture
def celery_app():
    before = current_app._get_current_object()
    app = Celery("checked", set_as_current=True)

    app.conf.task_routes = {"ledger.*": {"queue": "ledger"}}

    @app.task(base=ConsumerTask, bind=True, name="ledger.book", shared=False)
    def book(self, message): ...

    yield app
    app.close()
    before.set_current()


@pytest.mark.parametrize(
    ("arguments", "found"), [({}, 1), ({"x-dead-letter-exchange": "events.dead"}, 0)]
)
def test_a_task_whose_queue_drops_what_is_rejected_is_reported(celery_app, only, arguments, found):
    celery_app.conf.task_queues = [Queue("ledger", Exchange(""), queue_arguments=arguments)]
    messages = only("W025", deploy=True)
    assert len(messages) == found
    for message in messages:
        assert message.id == "django_outbox.W025"
        assert "'ledger.book' reads the queue 'ledger'" in message.msg


def test_a_queue_of_the_topology_keeps_what_is_rejected_unless_its_arguments_say_otherwise(
    celery_app, outbox_settings, only
):
    outbox_settings(TOPOLOGY={"QUEUES": {"ledger": {"BINDINGS": ["#"]}}})
    assert not only("W025", deploy=True)
    options = {"BINDINGS": ["#"], "ARGUMENTS": {"x-dead-letter-exchange": ""}}
    outbox_settings(TOPOLOGY={"QUEUES": {"ledger": options}})
    (message,) = only("W025", deploy=True)
    assert "gives the queue 'ledger' no dead-letter exchange" in message.msg


@pytest.fixture
def personal():
    @event_type("customer.moved", index_by="/email")
    class CustomerMoved:
        schema = {
            "type": "object",
            "properties": {"email": {"type": "string", "x-gdpr-sensitive": True}},
            "required": ["email"],
        }

    yield
    forget_event_type("customer.moved", 1)


def test_personal_members_without_the_app_that_seals_them_are_an_error(personal, settings, only):
    assert not only("E008", "E009")
    settings.INSTALLED_APPS = [a for a in settings.INSTALLED_APPS if "encryption" not in a]
    (message,) = only("E008", "E009")
    assert message.id == "django_outbox.E008"
    assert "'customer.moved'" in message.msg


def test_personal_members_without_a_keyring_are_an_error(personal, settings, only):
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": {}}
    messages = only("E009")
    assert {message.id for message in messages} == {"django_outbox.E009"}
    assert ["'default'" in messages[0].msg, "'index'" in messages[1].msg] == [True, True]


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_an_outbox_that_works_is_reported_for_nothing(database, only):
    RelayProcess.objects.create(name="host:1")
    with transaction.atomic():
        enqueue("invoice.issued", {})
    assert not only("W020", "W021", "W022", "W023", "W028", **RUNNING)


def test_a_relay_that_was_never_seen_or_long_ago_is_reported(database, only):
    (message,) = only("W020", **RUNNING)
    assert message.id == "django_outbox.W020"
    assert "yet" in message.msg
    RelayProcess.objects.create(name="host:1", seen_at=timezone.now() - timedelta(hours=1))
    (message,) = only("W020", **RUNNING)
    assert "since 20" in message.msg
    RelayProcess.objects.create(name="host:2", stopped_at=timezone.now())
    assert not only("W020", **RUNNING)


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_a_message_that_waits_for_longer_than_the_alert_age_is_reported(database, only):
    with transaction.atomic():
        enqueue("invoice.issued", {})
    OutboxMessage.objects.update(available_at=timezone.now() - timedelta(minutes=7))
    (message,) = only("W021", **RUNNING)
    assert message.id == "django_outbox.W021"
    assert "due for 0:07:0" in message.msg
    assert "(0:05:00)" in message.msg


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("RESET (autovacuum_vacuum_scale_factor)", "SET (autovacuum_vacuum_scale_factor = 0.01)"),
        ("SET (autovacuum_enabled = off)", "RESET (autovacuum_enabled)"),
    ],
)
def test_a_table_that_is_rarely_vacuumed_is_reported(database, only, change, back):
    table = f"ALTER TABLE {OutboxMessage._meta.db_table} "
    with connections["default"].cursor() as cursor:
        cursor.execute(table + change)
        try:
            (message,) = only("W022", **RUNNING)
        finally:
            cursor.execute(table + back)
    assert message.id == "django_outbox.W022"
    assert OutboxMessage._meta.db_table in message.msg


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_server_that_vacuums_nothing_is_reported(database, only):
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT current_setting('autovacuum')")
        (autovacuum,) = cursor.fetchone()
        assert len(only("W027", **RUNNING)) == (autovacuum == "off")
        try:
            cursor.execute("SET track_counts = off")
            (message,) = only("W027", **RUNNING)
        finally:
            cursor.execute("RESET track_counts")
    assert message.id == "django_outbox.W027"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_session_that_holds_back_vacuum_is_named_with_its_age(database, only, outbox_settings):
    outbox_settings(ALERT_AGE=0.001)
    idle = connections["postgresql"]
    with transaction.atomic(using="postgresql"):
        idle.cursor().execute("SET application_name = 'a forgotten shell'")
        idle.cursor().execute("SELECT txid_current()")
        pid = idle.connection.info.backend_pid
        (message,) = only("W023", **RUNNING)
    assert message.id == "django_outbox.W023"
    assert f"The session {pid} (a forgotten shell) has been idle" in message.msg
    idle.close()
    assert not only("W023", **RUNNING)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_session_that_holds_nothing_back_is_not_reported(database, only, outbox_settings):
    outbox_settings(ALERT_AGE=0.001)
    with transaction.atomic(using="postgresql"):
        connections["postgresql"].cursor().execute("SELECT 1")
        assert not only("W023", **RUNNING)
    connections["postgresql"].close()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_tables_that_may_not_be_read_are_said_so_and_no_error(database, only):
    connection = connections["default"]
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE ROLE reads_nothing")
            cursor.execute("SET ROLE reads_nothing")
        (message,) = only("W028", **RUNNING)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")
            cursor.execute("DROP ROLE reads_nothing")
    assert message.id == "django_outbox.W028"


def test_nothing_is_asked_of_a_database_that_is_not_named(database, only):
    assert not only("W020", deploy=True)
    assert not only("W020", databases=["default"])
    assert not only("W020", deploy=True, databases=["sqlite"])
