"""The dashboard: what is stuck, why, and what to do about it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_outbox.models import RelayProcess, Status
from tests.conftest import EVERY_DATABASE
from tests.integration.admin.conftest import LIST, hours, make, one_in_every_state

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
DASHBOARD = f"{LIST}dashboard/"


def relay(**fields: Any) -> RelayProcess:
    return RelayProcess.objects.create(**{"name": "host:1", "topics": "#", **fields})


def text_of(page: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


@everywhere
def test_it_shows_counts_failures_and_relays(browse):
    one_in_every_state()
    make(topic="invoice.issued", last_error="no queue is bound")
    relay()
    shown = text_of(browse("view").get(DASHBOARD))
    for words in ("2 dead", "1 published", "1 in flight", "no queue is bound", "1 relay at work"):
        assert words in shown
    assert "2 dead messages wait for you. Look at them" in shown


@everywhere
def test_it_takes_ten_statements_and_so_does_its_panel(browse):
    one_in_every_state()
    client = browse("view")
    for path in (DASHBOARD, f"{DASHBOARD}panel/", f"{DASHBOARD}panel/?brief=1"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        ours = [q["sql"] for q in queries if "django_outbox_" in q["sql"]]
        assert 0 < len(ours) <= 10


def test_each_failure_leads_to_the_list_of_its_messages(browse):
    for _ in range(3):
        make(topic="invoice.issued", last_error="no queue is bound for its topic: 312 NO_ROUTE")
    make(topic="invoice.issued", last_error="nack")
    client = browse("view")
    page = client.get(DASHBOARD).content.decode()
    link = re.search(r'href="([^"]*)" aria-label="3 dead, invoice.issued"', page)
    assert link is not None
    assert client.get(link[1].replace("&amp;", "&")).context["cl"].result_count == 3


def test_a_broker_that_is_down_is_named_with_its_reason_and_since_when(browse):
    since = timezone.now() - hours(2)
    outage = {"reason": "the broker cannot be reached", "since": since.isoformat()}
    relay(breakers={"default": outage})
    shown = text_of(browse("view").get(DASHBOARD))
    assert "The broker of &#x27;default&#x27; takes no messages since" in shown
    assert f"{since:%H:%M:%S}: the broker cannot be reached. There is nothing to press" in shown


def test_without_a_relay_it_says_what_to_start(browse):
    shown = text_of(browse("view").get(DASHBOARD))
    assert "No relay is at work. Nothing is due" in shown
    make(Status.PENDING)
    shown = text_of(browse("view").get(DASHBOARD))
    assert "No relay is at work, and 1 message is due: start outbox_relay." in shown


def test_where_nothing_is_stuck_it_says_so(browse):
    relay()
    make(Status.PUBLISHED)
    assert "Nothing is stuck: there is nothing to do." in text_of(browse("view").get(DASHBOARD))


def test_a_message_that_is_due_for_too_long_is_told(browse, outbox_settings):
    relay()
    make(Status.PENDING, available_at=timezone.now() - timedelta(minutes=4))
    client = browse("view")
    assert "has waited for" not in text_of(client.get(DASHBOARD))
    outbox_settings(ALERT_AGE=timedelta(minutes=3))
    assert "The oldest due message has waited for 4 min" in text_of(client.get(DASHBOARD))


@everywhere
def test_the_chart_has_a_bar_for_each_minute(browse):
    now = timezone.now().replace(second=0, microsecond=0)
    for minutes, number in ((2, 3), (7, 1)):
        for _ in range(number):
            make(Status.PUBLISHED, published_at=now - timedelta(minutes=minutes))
    page = browse("view").get(DASHBOARD).content.decode()
    heights = [float(height) for height in re.findall(r'<rect[^>]* height="([\d.]+)"', page)]
    assert len(heights) == 30
    assert sorted(heights)[-2:] == [16.0, 48.0]


def test_the_panel_is_never_kept(browse):
    assert "no-store" in browse("view").get(f"{DASHBOARD}panel/")["Cache-Control"]


def test_pages_hold_neither_inline_script_nor_inline_style(browse):
    dead = make(last_error="nack")
    client = browse("view", "requeue", "reveal")
    pages = [
        DASHBOARD,
        f"{DASHBOARD}panel/",
        LIST,
        f"{LIST}?state=dead",
        f"{LIST}{dead.pk}/change/",
    ]
    texts = [client.get(path).content.decode() for path in pages]
    texts.append(
        client.post(f"{LIST}act/requeue/", {"_selected_action": [dead.pk]}).content.decode()
    )
    for text in texts:
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
        assert all(re.search(r"\ssrc=", tag) for tag in re.findall(r"<script[^>]*>", text))
