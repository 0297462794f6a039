"""The example's own tests and checks, in its own settings, as somebody runs them who starts from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import services

ROOT = Path(__file__).parents[2]
OURS = ("DJANGO_", "OUTBOX_", "DATABASE_URL", "DEBUG", "SECRET_KEY", "ALLOWED_HOSTS")


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *arguments],
        cwd=ROOT,
        env={**env, **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )


def assert_succeeds(*arguments: str, **variables: str) -> str:
    ran = manage(*arguments, **variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_the_example_passes_its_tests_on_sqlite(tmp_path: Path) -> None:
    told = assert_succeeds(
        "test", "example_project", DATABASE_URL=f"sqlite:///{tmp_path / 'db.sqlite3'}"
    )
    assert "OK" in told


def test_the_example_passes_its_tests_on_postgresql() -> None:
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    base = services.POSTGRESQL_URL.rsplit("/", 1)[0]
    # Django makes a database of its own for the tests: this name with "test_" before it.
    url = f"{base}/{services.session_name('outbox_example')}"
    assert "OK" in assert_succeeds("test", "--noinput", "example_project", DATABASE_URL=url)


@pytest.mark.parametrize("broker", ["", "amqp://guest:guest@127.0.0.1:5672/%2F"])
def test_the_example_passes_every_check(tmp_path: Path, broker: str) -> None:
    told = assert_succeeds(
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
