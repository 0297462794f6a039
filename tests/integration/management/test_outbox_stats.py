from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_outbox.models import RelayProcess, Status
from tests.conftest import EVERY_DATABASE
from tests.support.stored import AN_HOUR, backing_off, in_flight, scheduled, stored


def run(*arguments):
    out = StringIO()
    call_command("outbox_stats", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_the_text_is_readable_at_80_columns(database):
    stored(available_at=timezone.now() - AN_HOUR)
    stored(Status.DEAD, topic="invoice." + "x" * 100, last_error="nack " * 50)
    stored(Status.PUBLISHED)
    backing_off(last_error="")
    RelayProcess.objects.create(
        name="host:17",
        breakers={"default": {"reason": "refused " * 30, "since": "2026-12-01T08:00:00+00:00"}},
    )
    said = run()
    assert max(map(len, said.splitlines())) <= 80
    assert "oldest due    1 h 0 min ago" in said
    assert "broker down   default" in said
    assert "Relays: 1 at work" in said
    assert "no relay came back to say why" in said


def test_where_no_relay_is_at_work_what_to_do_is_said(database):
    assert "Relays: none at work. Start outbox_relay." in run()


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_json_has_the_documented_keys(database):
    stored()
    stored(Status.DEAD)
    stored(Status.PUBLISHED)
    scheduled()
    in_flight()
    RelayProcess.objects.create(name="host:17")
    found = json.loads(run("--json"))
    assert set(found) == {
        "taken_at",
        "counts",
        "oldest_due_seconds",
        "published_per_minute",
        "latency",
        "failures",
        "relays",
        "broker_down",
    }
    assert found["counts"] == {
        state: {"number": number, "is_estimate": False}
        for state, number in {
            "ready": 1,
            "scheduled": 1,
            "retrying": 0,
            "in_flight": 1,
            "blocked": 0,
            "dead": 1,
            "published": 1,
            "discarded": 0,
        }.items()
    }
    assert set(found["latency"]) == {"median_seconds", "p99_seconds"}
    [failure] = found["failures"]
    assert set(failure) == {"error", "topic", "status", "count", "is_estimate", "oldest"}
    [relay] = found["relays"]
    assert set(relay) == {"name", "started_at", "seen_at", "is_alive", "open_breakers"}


def test_the_exit_code_tells_that_a_message_has_been_due_for_too_long(database):
    stored(available_at=timezone.now() - AN_HOUR)
    run("--max-age", "2h")
    with pytest.raises(CommandError, match="due for 1 h 0 min, longer than 15 min") as raised:
        run("--max-age", "15m")
    assert raised.value.returncode == 2


def test_what_is_not_due_is_not_too_old(database):
    scheduled(created_at=timezone.now() - 10 * AN_HOUR)
    in_flight(available_at=timezone.now() - 10 * AN_HOUR)
    run("--max-age", "1s")


def test_an_alias_that_does_not_exist_is_refused(database):
    with pytest.raises(CommandError, match="DATABASES has no 'elsewhere'"):
        run("--database", "elsewhere")
