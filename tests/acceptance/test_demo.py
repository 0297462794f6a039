"""``outbox_demo`` as a newcomer runs it: a real process, a database of its own."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support import services

ROOT = Path(__file__).parents[2]
STORY = [
    "1. Migrate",
    "migrated",
    "2. Commit",
    "committed",
    "enqueued",
    "pending, attempts 0",
    "3. Issue another one, and roll back",
    "before",
    "inside",
    "rolled back",
    "4. Run the relay",
    "claimed",
    "handled",
    "receipt",
    "published",
    "5. Let the message arrive a second time",
    "duplicate dropped",
    "What to try next",
    "createsuperuser",
    "http://127.0.0.1:8000/admin/",
    "OUTBOX_BROKER_URL",
]


def demo(database_url: str) -> str:
    """What the demo prints, with nothing set but its database."""
    ours = ("DJANGO_", "OUTBOX_", "DATABASE_URL", "DEBUG", "SECRET_KEY", "LOG_LEVEL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    ran = subprocess.run(
        [sys.executable, ROOT / "manage.py", "outbox_demo"],
        env={**env, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def assert_tells_the_story(output: str) -> None:
    position = 0
    for part in STORY:
        position = output.find(part, position)
        assert position >= 0, f"{part!r} is missing or out of order in:\n{output}"


def line(output: str, word: str) -> str:
    [found] = re.findall(rf"^ +{word} +(.*)$", output, re.MULTILINE)
    return str(found)


def counts(told: str) -> list[int]:
    return [int(number) for number in re.findall(r"(?<=: )\d+", told)]


def test_the_demo_shows_a_messages_life_and_can_be_run_again(tmp_path: Path) -> None:
    path = tmp_path / "demo.sqlite3"
    for run in (1, 2):
        output = demo(f"sqlite:///{path}")
        assert_tells_the_story(output)
        message_id = line(output, "enqueued").split(":")[0].replace("-", "")
        with sqlite3.connect(path) as database:
            [row] = database.execute(
                "SELECT status, attempts FROM django_outbox_outboxmessage WHERE message_id = ?",
                [message_id],
            )
            assert row == ("published", 1)
            [(published,)] = database.execute("SELECT count(*) FROM django_outbox_outboxmessage")
            [(entries,)] = database.execute("SELECT count(*) FROM ledger_entry")
        database.close()
        assert (published, entries) == (run, 2 * run)


def test_the_demo_rolls_both_back_or_commits_both(tmp_path: Path) -> None:
    output = demo(f"sqlite:///{tmp_path / 'demo.sqlite3'}")
    rollback = output.split("3. ")[1].split("4. ")[0]
    before, inside = counts(line(rollback, "before")), counts(line(rollback, "inside"))
    assert [now - then for then, now in zip(before, inside, strict=True)] == [1, 1]
    assert counts(line(rollback, "rolled back")) == before


@pytest.fixture
def postgresql_database() -> Iterator[str]:
    """The URL of a new, empty PostgreSQL database."""
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    name = services.session_name("outbox_demo")
    with psycopg.connect(services.POSTGRESQL_URL, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield services.POSTGRESQL_URL.rsplit("/", 1)[0] + f"/{name}"
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_demo_runs_on_postgresql_by_one_variable(postgresql_database: str) -> None:
    output = demo(postgresql_database)
    assert_tells_the_story(output)
    assert "PostgreSQL" in line(output, "database")
