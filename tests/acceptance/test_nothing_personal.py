"""A rare name goes through the whole example, and is then looked for wherever others could look."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.acceptance.leak_scenario import MAIL, NAME, TAX_ID
from tests.support import services

ROOT = Path(__file__).parents[2]
#: Each alone would tell who it is.
TRACES = [*NAME.split(), MAIL, TAX_ID, TAX_ID.replace(" ", "")]


@pytest.fixture
def database_url():
    services.require(services.POSTGRESQL_URL, "PostgreSQL")
    name = services.session_name("outbox_leaks")
    with psycopg.connect(
        services.POSTGRESQL_URL.replace("postgres:", "postgresql:"), autocommit=True
    ) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        server.execute(f'CREATE DATABASE "{name}"')
        yield urlunsplit(urlsplit(services.POSTGRESQL_URL)._replace(path=f"/{name}"))
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def texts(folder):
    return {path.name: path.read_text(errors="replace") for path in sorted(folder.iterdir())}


def traces_in(text):
    lowered = text.lower()
    return [trace for trace in TRACES if trace.lower() in lowered]


def test_a_rare_name_is_nowhere(database_url, example_broker, tmp_path):
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "OUTBOX_BROKER_URL": example_broker.url,
        "OUTBOX_EXCHANGE": services.session_name("leaks"),
        "LOG_LEVEL": "DEBUG",
        "LEAKS_FOLDER": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.acceptance.leak_scenario"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (tmp_path / "stdout.txt").write_text(done.stdout)
    (tmp_path / "stderr.txt").write_text(done.stderr)
    found = texts(tmp_path)
    expected = {
        "admin_admin_.html",
        "command_outbox_reencrypt.txt",
        "debug.log",
        "dumpdata.json",
        "page_handler.html",
        "page_posted.html",
        "queue_ledger.txt",
        "queue_ledger.dead.txt",
    }
    assert expected <= set(found)
    assert "table_billing_customer.txt" in found
    assert "INSERT INTO" in found["debug.log"], "the log has every statement"
    assert "$jwe" in found["queue_ledger.txt"]
    assert "another message" in found["queue_ledger.dead.txt"]
    leaks = {name: traces for name, text in found.items() if (traces := traces_in(text))}
    assert leaks == {}
