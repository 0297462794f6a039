"""Messages go into the archive before they are deleted, in the same batch, or they stay."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_outbox.conf import settings_problems
from django_outbox.exceptions import ArchiveFailed, ImproperlyConfiguredOutbox
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations import prune as pruning
from django_outbox.operations.archive import ArchivedMessage
from django_outbox.operations.prune import prune
from django_outbox.operations.replay import replay
from django_outbox.operations.selection import every_message
from tests.conftest import EVERY_DATABASE
from tests.support.stored import stored

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
LONG_AGO = timezone.now() - timedelta(days=60)

batches: list[list[ArchivedMessage]] = []
failures: list[Exception] = []


def keep(rows):
    """What a project writes: ``OUTBOX["ARCHIVE"]`` names it."""
    if failures:
        raise failures.pop()
    batches.append(list(rows))


def keep_and_replay(rows):
    """While the archive works, somebody replays the messages."""
    batches.append(list(rows))
    replay(every_message())


async def keep_some_day(rows):
    """Would keep nothing: nobody awaits it."""


HERE = __name__


@pytest.fixture(autouse=True)
def empty():
    batches.clear()
    failures.clear()


@pytest.fixture
def archived(outbox_settings):
    outbox_settings(ARCHIVE=f"{HERE}.keep", RETENTION={"dead": timedelta(days=30)})


def old(status=Status.PUBLISHED, **columns):
    times = {"created_at": LONG_AGO, "available_at": LONG_AGO}
    if status == Status.PUBLISHED:
        times["published_at"] = LONG_AGO
    return stored(status, **{**times, **columns})


@everywhere
def test_what_is_pruned_was_archived_before_as_it_was(database, archived):
    payload = {"total": "12.50", "lines": [1, 2.5, None], "customer": {"$jwe": "ey…"}}
    published = old(payload=payload, headers={"x": 1}, aggregate=("t", "1"), sequence=3)
    dead, discarded = old(Status.DEAD, last_error="nack"), old(Status.DISCARDED)
    pending, fresh = old(Status.PENDING), stored(Status.PUBLISHED)
    pruned = prune()
    assert (pruned.published, pruned.dead, pruned.discarded) == (1, 1, 1)
    assert set(OutboxMessage.objects.all()) == {pending, fresh}
    found = {row.message_id: row for batch in batches for row in batch}
    assert set(found) == {str(row.message_id) for row in (published, dead, discarded)}
    row = found[str(published.message_id)]
    assert json.loads(row.payload) == payload
    assert (row.headers, row.aggregate_id, row.sequence) == ({"x": 1}, "1", 3)
    assert (row.status, row.created_at) == ("published", published.created_at)
    assert found[str(dead.message_id)].last_error == "nack"
    assert found[str(dead.message_id)].published_at is None


@everywhere
def test_an_archive_that_fails_deletes_nothing(database, archived):
    for _ in range(3):
        old()
    failures.append(OSError("disk full of Ünal"))
    with pytest.raises(ArchiveFailed, match="raised OSError for 3 messages") as failed:
        prune()
    assert "Ünal" not in str(failed.value)
    assert OutboxMessage.objects.count() == 3
    assert prune().published == 3


def test_batches_before_the_failing_one_are_gone_and_no_other(database, archived, monkeypatch):
    for _ in range(5):
        old()
    kept = []

    def twice_and_no_more(rows):
        if len(kept) == 2:
            raise ConnectionError
        kept.append(rows)

    monkeypatch.setattr(f"{HERE}.keep", twice_and_no_more)
    with pytest.raises(ArchiveFailed):
        prune(chunk=2)
    assert OutboxMessage.objects.count() == 1


def test_the_command_fails_and_names_the_archive(database, archived):
    old()
    failures.append(ValueError())
    with pytest.raises(CommandError, match=f"{HERE}.keep' raised ValueError"):
        call_command("outbox_prune", stdout=StringIO())
    assert OutboxMessage.objects.count() == 1


@everywhere
def test_what_was_replayed_while_the_archive_worked_is_not_deleted(database, outbox_settings):
    outbox_settings(ARCHIVE=f"{HERE}.keep_and_replay")
    row = old()
    assert prune().published == 0
    row.refresh_from_db()
    assert row.status == Status.PENDING
    assert len(batches) == 1


def test_batches_are_bounded_by_their_bytes(database, archived, monkeypatch):
    monkeypatch.setattr(pruning, "ARCHIVE_BYTES", 100)
    for size in (90, 90, 5, 5, 500):
        old(size=size)
    assert prune().published == 5
    assert [len(batch) for batch in batches] == [1, 3, 1]


def test_an_async_archive_is_refused_before_anything_is_lost(database, outbox_settings):
    outbox_settings(ARCHIVE=f"{HERE}.keep_some_day")
    old()
    with pytest.raises(ArchiveFailed):
        prune()
    assert OutboxMessage.objects.count() == 1


def test_a_dry_run_archives_nothing(database, archived):
    old()
    assert prune(dry_run=True).published == 1
    assert batches == []


@everywhere
def test_json_lines_go_to_a_storage_one_file_a_batch(database, outbox_settings, settings, tmp_path):
    settings.STORAGES = {
        "cold": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": tmp_path},
        }
    }
    outbox_settings(
        ARCHIVE={
            "BACKEND": "django_outbox.operations.archive.JsonLinesArchive",
            "STORAGE": "cold",
            "PREFIX": "events/",
        }
    )
    text = "line\nbreak, \u2028 and Ünal"
    rows = [old(payload={"n": number, "text": text}) for number in range(5)]
    prune(chunk=3)
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert len(files) == 2
    assert files[0].relative_to(tmp_path).parts[:4] == (
        "events",
        *f"{LONG_AGO:%Y %m %d}".split(),
    )
    lines = [line for file in files for line in file.read_bytes().decode().rstrip("\n").split("\n")]
    found = [json.loads(line) for line in lines]
    assert {each["message_id"]: each["payload"] for each in found} == {
        str(row.message_id): row.payload for row in rows
    }
    assert found[0]["created_at"] == LONG_AGO.isoformat()
    assert storages["cold"].listdir("")[0] == ["events"]


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        (7, r"OUTBOX\['ARCHIVE'\] must be the path of a callable"),
        ({"STORAGE": "default"}, r"OUTBOX\['ARCHIVE'\] must be the path of a callable"),
        ("nowhere.keep", "cannot be imported"),
        (f"{HERE}.batches", "cannot be called"),
        ({"BACKEND": f"{HERE}.keep", "X": 1}, "is no class: it takes no further options"),
        (
            {"BACKEND": "django_outbox.operations.archive.JsonLinesArchive", "STORE": "cold"},
            "cannot be made",
        ),
        (
            {"BACKEND": "django_outbox.operations.archive.JsonLinesArchive", "STORAGE": "cold"},
            r"\['STORAGE'\]",
        ),
    ],
)
def test_an_archive_that_cannot_work_is_refused_before_anything_is_deleted(
    database, outbox_settings, archive, problem
):
    old()
    outbox_settings(ARCHIVE=archive)
    with pytest.raises(ImproperlyConfiguredOutbox, match=problem):
        prune()
    assert OutboxMessage.objects.count() == 1


def test_an_archive_and_deleting_at_settle_contradict_each_other(outbox_settings):
    outbox_settings(ARCHIVE=f"{HERE}.keep", RETENTION={"published": 0})
    [(problem, hint)] = settings_problems()
    assert "the archive never sees it" in problem
    assert "Keep published messages for a while" in hint


def test_what_is_archived_shows_no_value(database, archived):
    old(payload={"name": "Ünal"}, correlation_id="of-Ünal", headers={"h": "Ünal"})
    prune()
    assert "Ünal" not in repr(batches)
