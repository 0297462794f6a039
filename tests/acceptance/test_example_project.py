"""The example as somebody runs it who starts from it: its own tests, its checks, its two variables."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.example import PATIENCE, command, environment, manage, manage_well
from tests.support import services
from tests.support.rabbitmq import Broker
from tests.support.threads import wait_until

ISSUE = """
from example_project.billing.demo import draft
from example_project.billing.services import issue_invoice, record_payment
record_payment(issue_invoice(draft().pk).pk)
"""


def test_the_example_passes_its_tests_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'db.sqlite3'}"
    assert "OK" in manage_well("test", "example_project", DATABASE_URL=url)


def test_the_example_passes_its_tests_on_postgresql() -> None:
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    # Django makes a database of its own for the tests: this name with "test_" before it.
    name = services.session_name("outbox_example")
    url = f"{services.POSTGRESQL_URL.rsplit('/', 1)[0]}/{name}"
    assert "OK" in manage_well("test", "--noinput", "example_project", DATABASE_URL=url)


@pytest.mark.parametrize("broker", ["", "amqp://guest:guest@127.0.0.1:5672/%2F"])
def test_the_example_passes_every_check(tmp_path: Path, broker: str) -> None:
    told = manage_well(
        "check",
        "--fail-level=WARNING",
        "--database=default",
        DATABASE_URL=f"sqlite:///{tmp_path / 'db.sqlite3'}",
        OUTBOX_BROKER_URL=broker,
    )
    assert "no issues" in told


def test_the_example_refuses_to_run_in_production_without_a_secret_key() -> None:
    refused = manage("check", DEBUG="off")
    assert refused.returncode != 0
    assert "SECRET_KEY" in refused.stderr


def test_two_variables_take_the_example_to_postgresql_and_rabbitmq(
    postgresql_url: str, example_broker: Broker
) -> None:
    variables = {"DATABASE_URL": postgresql_url, "OUTBOX_BROKER_URL": example_broker.url}
    manage_well("migrate", "-v0", **variables)
    assert "ledger" in manage_well("outbox_topology", **variables)
    manage_well("shell", "-v0", "-c", ISSUE, **variables)
    manage_well("outbox_relay", "--once", **variables)
    with psycopg.connect(postgresql_url, autocommit=True) as database:

        def count(table: str) -> int:
            [(number,)] = database.execute(f"SELECT count(*) FROM {table}").fetchall()  # type: ignore[arg-type]
            return int(number)

        # Published to RabbitMQ: nothing was handled by the relay's own process.
        assert count("django_outbox_outboxmessage WHERE status = 'published'") == 2
        assert count("ledger_entry") == 0
        consuming = subprocess.Popen(
            command("outbox_consume", "--queue", "ledger"), env=environment(**variables)
        )
        try:
            wait_until(lambda: count("ledger_entry") == 4, "two bookings of two entries")
        finally:
            consuming.send_signal(signal.SIGTERM)
            assert consuming.wait(PATIENCE) == 0
        assert count("django_outbox_processedmessage") == 2
