"""``outbox_demo`` as a newcomer runs it: a real process, a database of its own."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from tests.acceptance.example import manage_well

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
    return manage_well("outbox_demo", DATABASE_URL=database_url)


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


def test_the_demo_runs_on_postgresql_by_one_variable(postgresql_url: str) -> None:
    output = demo(postgresql_url)
    assert_tells_the_story(output)
    assert "PostgreSQL" in line(output, "database")
