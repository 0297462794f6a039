"""``outbox_relay`` where it cannot work: one line that says what to do, and no traceback."""

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from tests.conftest import EVERY_DATABASE
from tests.support.aliases import set_up
from tests.support.outages import database_away

on_every_database = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


@pytest.fixture
def no_tables(database):
    """The outbox's table under another name for the time of a test."""

    def rename(old, new):
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")

    rename("django_outbox_outboxmessage", "put_aside")
    yield
    rename("put_aside", "django_outbox_outboxmessage")


@on_every_database
@pytest.mark.parametrize("arguments", [[], ["--once"]])
def test_a_database_without_the_tables_is_to_be_migrated(no_tables, arguments):
    with pytest.raises(CommandError, match="migrate"):
        call_command("outbox_relay", *arguments)


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_once_does_not_wait_for_a_database_that_is_away(database):
    with database_away(), pytest.raises(CommandError, match="does not let the relay work"):
        call_command("outbox_relay", "--once")


@pytest.mark.parametrize("database", ["mysql", "sqlite"], indirect=True)
def test_a_relay_does_not_start_to_wait_for_what_cannot_wake_it(database, outbox_settings):
    outbox_settings(WAKEUP="notify")
    with pytest.raises(CommandError, match="'WAKEUP'"):
        call_command("outbox_relay", skip_checks=True)


@on_every_database
def test_a_relay_does_not_start_without_autocommit(database):
    with set_up(AUTOCOMMIT=False), pytest.raises(CommandError, match="'AUTOCOMMIT'"):
        call_command("outbox_relay", "--once", skip_checks=True)
