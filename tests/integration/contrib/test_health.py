"""Health for probes: the JSON view and the check for django-health-check agree, and name what is wrong."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from health_check.views import HealthCheckView

from django_outbox.contrib.health.checks import Outbox
from django_outbox.contrib.health.views import HealthView
from django_outbox.models import OutboxMessage, RelayProcess
from tests.conftest import EVERY_DATABASE
from tests.support.journeys import produce
from tests.support.outages import database_away
from tests.support.threads import elsewhere


def view(**options: Any) -> tuple[int, Any]:
    response = HealthView.as_view(**options)(RequestFactory().get("/"))
    assert response["Cache-Control"] == "no-store"
    return response.status_code, json.loads(response.content)


def check(**options: Any) -> str:
    """What django-health-check finds; empty: all is well."""
    error = elsewhere(lambda: asyncio.run(Outbox(**options).get_result())).result(60).error
    return "" if error is None else error.message


def codes(answer: Any) -> list[str]:
    return [trouble["code"] for trouble in answer["troubles"]]


@pytest.fixture
def relay(database):
    return RelayProcess.objects.create(name="host-1:7")


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_an_outbox_with_a_relay_and_nothing_late_is_well(database, relay):
    produce()
    assert view() == (200, {"status": "ok", "troubles": []})
    assert check() == ""


def test_without_a_relay_it_fails_unless_none_is_required(database):
    status, answer = view()
    assert (status, codes(answer)) == (503, ["no_relay"])
    assert "outbox_relay" in check()
    assert view(require_relay=False)[0] == 200
    assert check(require_relay=False) == ""


def test_a_message_that_waits_for_too_long_is_trouble(database, relay, outbox_settings):
    produce()
    OutboxMessage.objects.update(available_at=timezone.now() - timedelta(minutes=6))
    status, answer = view()
    assert (status, codes(answer)) == (503, ["too_old"])
    assert "300 s are well" in check()
    assert view(max_age=timedelta(hours=1))[0] == 200
    outbox_settings(ALERT_AGE=3600)
    assert view()[0] == 200
    assert view(max_age=timedelta(0))[0] == 503, "none at all is not the default"


def test_a_broker_that_is_down_is_named_by_its_publisher_alone(database, relay):
    relay.breakers = {"default": {"reason": "mq-1.internal refused", "since": "2026-01-01"}}
    relay.save()
    status, answer = view()
    assert (status, codes(answer)) == (503, ["broker_down"])
    assert "'default'" in check()
    assert "internal" not in str(answer) + check()


def test_dead_messages_are_trouble_only_where_a_limit_is_set(database, relay):
    produce()
    OutboxMessage.objects.update(status="dead")
    assert view()[0] == 200
    status, answer = view(max_dead=0)
    assert (status, codes(answer)) == (503, ["dead"])
    assert check(max_dead=0)
    assert not check(max_dead=1)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_database_that_is_away_is_an_answer(database):
    with database_away():
        status, answer = view(show_stats=True)
        assert (status, codes(answer)) == (503, ["database"])
        assert answer["stats"] is None
        assert "cannot be read (OperationalError)" in check()


def test_no_database_s_transaction_is_opened_for_the_view(database, monkeypatch):
    for alias in connections:
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
    asked = HealthView.as_view()
    assert BaseHandler().make_view_atomic(asked) is asked


def test_numbers_and_names_are_shown_only_where_they_are_asked_for(database, relay):
    assert "host-1" not in json.dumps(view()[1])
    assert view(show_stats=True)[1]["stats"]["relays"][0]["name"] == "host-1:7"


def test_a_look_costs_at_most_ten_statements(database, relay):
    produce()
    with CaptureQueriesContext(connections["default"]) as queries:
        view()
    assert len(queries) <= 10


def test_it_is_no_page_to_post_to(database):
    response = HealthView.as_view()(RequestFactory().post("/"))
    assert response.status_code == 405


def test_it_takes_part_in_the_page_of_django_health_check(database):
    path = "django_outbox.contrib.health.checks.Outbox"
    page = HealthCheckView.as_view(checks=[(path, {"require_relay": False})])

    def ask() -> Any:
        return asyncio.run(page(RequestFactory().get("/", {"format": "json"})))

    response = elsewhere(ask).result(60)
    assert response.status_code == 200
    assert list(json.loads(response.content).values()) == ["OK"]
