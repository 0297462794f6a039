from __future__ import annotations

import pytest
from django.db import connections

from tests.support import services


class BusinessElsewhere:
    """Invoices are written to another database than everything else."""

    models = {"invoice"}

    def db_for_write(self, model, **hints):
        if model._meta.app_label == "testapp" and model._meta.model_name in self.models:
            return "sqlite"
        return None


class EverythingElsewhere(BusinessElsewhere):
    def db_for_write(self, model, **hints):
        return None if model._meta.app_label == "django_outbox" else "sqlite"


class OutboxElsewhere:
    def db_for_write(self, model, **hints):
        return "sqlite" if model._meta.app_label == "django_outbox" else None


class NoTables:
    def allow_migrate(self, db, app_label, **hints):
        return False if app_label == "django_outbox" else None


@pytest.fixture
def route(settings):
    def by(router):
        settings.DATABASE_ROUTERS = [f"{__name__}.{router.__name__}"]

    return by


@pytest.fixture
def write_to(outbox_settings, route):
    """Write the outbox to this alias, whatever the business does."""
    return lambda alias: outbox_settings(DATABASE=alias)


def test_an_alias_that_does_not_exist_is_reported(outbox_settings, run_checks):
    outbox_settings(DATABASE="nowhere")
    (message,) = run_checks()
    assert message.id == "django_outbox.E010"
    assert "'nowhere'" in message.msg
    assert "default" in message.hint


def test_a_database_that_nobody_wrote_is_reported(add_database, write_to, ids):
    add_database("other", ENGINE="django.db.backends.dummy")
    write_to("other")
    assert "django_outbox.E011" in ids()


def test_notify_needs_postgresql(outbox_settings, ids):
    outbox_settings(WAKEUP="notify", DATABASE="sqlite")
    assert "django_outbox.E012" in ids()


def test_notify_on_postgresql_is_right(outbox_settings, ids):
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    outbox_settings(WAKEUP="notify", DATABASE="postgresql")
    assert "django_outbox.E012" not in ids()


def test_a_business_that_lies_elsewhere_altogether_is_an_error(route, run_checks):
    route(EverythingElsewhere)
    (message,) = run_checks()
    assert message.id == "django_outbox.E013"
    assert "'default'" in message.msg


def test_an_outbox_that_lies_elsewhere_is_an_error(route, ids):
    route(OutboxElsewhere)
    assert ids() == ["django_outbox.E013"]


def test_models_that_lie_elsewhere_are_named(route, run_checks):
    route(BusinessElsewhere)
    (message,) = run_checks()
    assert message.id == "django_outbox.W010"
    assert "testapp.Invoice" in message.msg
    assert "testapp.Balance" not in message.msg
    assert "'sqlite'" in message.msg


def test_routers_that_keep_the_tables_out_are_an_error(route, ids):
    route(NoTables)
    assert ids() == ["django_outbox.E014"]


def test_an_alias_without_autocommit_is_an_error(add_database, write_to, ids):
    add_database("other", NAME=":memory:", AUTOCOMMIT=False)
    write_to("other")
    assert "django_outbox.E016" in ids()


@pytest.mark.parametrize("options", [{}, {"transaction_mode": "DEFERRED"}])
def test_sqlite_that_begins_as_a_reader_is_reported(options, add_database, write_to, ids):
    add_database("other", NAME="/tmp/not-opened.sqlite3", OPTIONS=options)
    write_to("other")
    assert "django_outbox.W011" in ids()


@pytest.mark.parametrize(
    "changes",
    [
        {"OPTIONS": {"transaction_mode": "IMMEDIATE"}},
        {"OPTIONS": {"transaction_mode": "exclusive"}},
        {"OPTIONS": {}, "NAME": ":memory:"},
    ],
)
def test_sqlite_that_begins_as_a_writer_or_in_memory_is_right(changes, add_database, write_to, ids):
    add_database("other", **{"NAME": "/tmp/not-opened.sqlite3", **changes})
    write_to("other")
    assert "django_outbox.W011" not in ids()


@pytest.mark.parametrize("isolation", ["repeatable read", "SERIALIZABLE"])
def test_mysql_at_an_isolation_that_makes_claims_wait_is_reported(
    isolation, add_database, write_to, run_checks
):
    services.require(services.MYSQL_URL, "MariaDB")
    add_database("other", "mysql", OPTIONS={"isolation_level": isolation})
    write_to("other")
    (message,) = [m for m in run_checks() if m.id == "django_outbox.W012"]
    assert isolation.lower() in message.msg


@pytest.mark.parametrize("options", [{}, {"isolation_level": "read committed"}])
def test_mysql_as_django_sets_it_up_is_right(options, add_database, write_to, ids):
    services.require(services.MYSQL_URL, "MariaDB")
    add_database("other", "mysql", OPTIONS=options)
    write_to("other")
    assert "django_outbox.W012" not in ids()


@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_the_server_is_asked_for_its_isolation_only_where_a_database_is_named(
    database, add_database, write_to, ids
):
    add_database("other", "mysql", OPTIONS={"isolation_level": None})
    write_to("other")
    assert "django_outbox.W012" not in ids()
    # MariaDB and MySQL begin at REPEATABLE READ unless somebody has set them up otherwise.
    assert "django_outbox.W012" in ids(databases=["other"])


@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_a_server_without_skip_locked_is_an_error(database, add_database, write_to, ids):
    other = add_database("other", "mysql")
    write_to("other")
    assert "django_outbox.E015" not in ids(databases=["other"])
    other.features.__dict__["has_select_for_update_skip_locked"] = False
    assert "django_outbox.E015" in ids(databases=["other"])


def test_no_connection_is_opened_unless_a_database_is_named(add_database, write_to, ids):
    # Nothing listens there: to connect would fail.
    add_database("other", "sqlite", NAME="/nonexistent/folder/db.sqlite3")
    write_to("other")
    assert "django_outbox.E010" not in ids()


@pytest.mark.parametrize("vendor", ["mysql", "sqlite"])
def test_an_alias_in_another_time_zone_than_utc_is_reported(
    vendor, database, add_database, write_to, run_checks
):
    if vendor == "mysql":
        services.require(services.MYSQL_URL, "MariaDB")
    add_database("other", vendor, TIME_ZONE="Europe/Istanbul")
    write_to("other")
    (message,) = [m for m in run_checks() if m.id == "django_outbox.W013"]
    assert "'other'" in message.msg
    assert "Europe/Istanbul" in message.msg


def test_an_alias_in_utc_is_no_problem(database, add_database, write_to, ids):
    add_database("other", TIME_ZONE="UTC")
    write_to("other")
    assert "django_outbox.W013" not in ids()


def test_a_project_without_time_zones_is_reported_only_where_it_is_not_in_utc(
    database, add_database, write_to, ids, settings
):
    settings.USE_TZ = False
    add_database("other")
    write_to("other")
    assert "django_outbox.W013" not in ids()
    settings.TIME_ZONE = "Europe/Istanbul"
    assert "django_outbox.W013" in ids()
    write_to("default")
    assert connections["default"].vendor != "postgresql" or "django_outbox.W013" not in ids()


def test_an_old_sqlite_is_reported(database, add_database, write_to, ids, monkeypatch):
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    add_database("other")
    write_to("other")
    assert "django_outbox.W013" in ids()


@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_a_server_that_a_relay_cannot_work_with_is_reported(database, run_checks, monkeypatch):
    assert not [m for m in run_checks(databases=["default"]) if m.id == "django_outbox.W014"]
    variables = "SELECT 'log_bin', 'ON' UNION SELECT 'binlog_format', 'STATEMENT' UNION SELECT 'wsrep_on', 'ON'"
    monkeypatch.setattr("django_outbox.databases.mysql._VARIABLES", variables)
    found = [m.msg for m in run_checks(databases=["default"]) if m.id == "django_outbox.W014"]
    assert ["binary log" in found[0], "Galera" in found[1]] == [True, True]
