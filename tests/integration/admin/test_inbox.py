"""The inbox, the relays and the keys in the admin: read only, found by an index, nothing personal."""

from __future__ import annotations

import re
import uuid

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils import timezone

from django_outbox.admin import OutboxMessageAdmin, register
from django_outbox.consumers import consumer
from django_outbox.consumers.registry import isolated_registry
from django_outbox.models import (
    AggregateCursor,
    CallState,
    ExternalCall,
    OutboxMessage,
    ProcessedMessage,
    RelayProcess,
    StoredResponse,
)
from tests.conftest import EVERY_DATABASE
from tests.integration.admin.conftest import hours, make
from tests.support.plans import explained

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
ROOT = "/admin/django_outbox/"
SECRET = "Zyxwvut-Qrstu"

site = admin.AdminSite("ops")
register(site)
urlpatterns = [path("ops/", site.urls), path("admin/", admin.site.urls)]


def processed(name: str, **fields: object) -> ProcessedMessage:
    given = {"consumer": name, "message_id": uuid.uuid4(), "topic": "a.b", **fields}
    return ProcessedMessage.objects.create(**given)


def called(state: str, **fields: object) -> ExternalCall:
    given = {"consumer": "mailer", "message_id": uuid.uuid4(), "state": state, **fields}
    return ExternalCall.objects.create(outcome={"name": SECRET}, **given)


def rows(client: Client, model: str, query: str = "") -> list[object]:
    page = client.get(f"{ROOT}{model}/{query}")
    assert page.status_code == 200
    return [row.pk for row in page.context["cl"].result_list]


@everywhere
def test_what_consumers_have_processed_is_found_by_message_id_and_consumer(browse):
    first = processed("ledger", processed_at=timezone.now() - hours(1))
    again = processed("mailer", message_id=first.message_id)
    other = processed("ledger")
    client = browse("view_processedmessage")
    assert rows(client, "processedmessage")[-1] == first.pk
    found = rows(client, "processedmessage", f"?q={first.message_id}")
    assert set(found) == {first.pk, again.pk}
    assert set(rows(client, "processedmessage", "?q=ledger")) == {first.pk, other.pk}
    assert rows(client, "processedmessage", "?consumer=led%00ger") == []
    assert set(rows(client, "processedmessage", "?q=%00")) == {first.pk, again.pk, other.pk}
    with isolated_registry():
        consumer("a.b", name="ledger")(print)
        assert "?consumer=ledger" in client.get(f"{ROOT}processedmessage/").content.decode()
        assert set(rows(client, "processedmessage", "?consumer=ledger")) == {first.pk, other.pk}


@everywhere
def test_unresolved_calls_come_first(browse):
    gone = called(CallState.RESERVED, lease_expires_at=timezone.now() - hours(1))
    unknown = called(CallState.UNKNOWN)
    done = called(CallState.SUCCEEDED)
    at_work = called(CallState.RESERVED, lease_expires_at=timezone.now() + hours(1))
    client = browse("view_externalcall")
    assert set(rows(client, "externalcall")) == {gone.pk, unknown.pk}
    assert rows(client, "externalcall", "?state=succeeded") == [done.pk]
    assert len(rows(client, "externalcall", "?state=all")) == 4
    assert rows(client, "externalcall", f"?q={at_work.message_id}") == [at_work.pk]


@everywhere
def test_neither_outcomes_nor_bodies_nor_headers_nor_keys_are_shown(browse):
    call = called(CallState.SUCCEEDED)
    response = StoredResponse.objects.create(
        key_digest="d" * 64,
        fingerprint="f" * 64,
        method="POST",
        status_code=201,
        headers={"x-name": SECRET},
        body=SECRET.encode(),
        expires_at=timezone.now() + hours(1),
    )
    client = browse("view_externalcall", "view_storedresponse")
    for model, row in (("externalcall", call), ("storedresponse", response)):
        for tail in ("?state=all" if model == "externalcall" else "", f"{row.pk}/change/"):
            with CaptureQueriesContext(connection) as queries:
                page = client.get(f"{ROOT}{model}/{tail}")
            assert page.status_code == 200
            text = page.content.decode()
            assert not any(word in text for word in (SECRET, "d" * 64, "f" * 64))
            if not tail.endswith("change/"):
                ours = " ".join(q["sql"] for q in queries if "django_outbox_" in q["sql"])
                assert not any(f".{c}" in ours.replace('"', "") for c in ("outcome", "body"))


@everywhere
def test_cursors_are_found_by_aggregate(browse):
    for name in ("ledger", "mailer"):
        AggregateCursor.objects.create(
            consumer=name, aggregate_type="invoice", aggregate_id="7", sequence=3
        )
    AggregateCursor.objects.create(
        consumer="ledger", aggregate_type="invoice", aggregate_id="8", sequence=1
    )
    client = browse("view_aggregatecursor")
    assert len(rows(client, "aggregatecursor")) == 3
    assert len(rows(client, "aggregatecursor", "?q=invoice:7")) == 2


@everywhere
def test_relays_tell_what_they_do(browse):
    outage = {
        "default": {"reason": "the broker cannot be reached", "since": "2026-01-01T00:00:00Z"}
    }
    row = RelayProcess.objects.create(name="host:1", topics="#", published=12, breakers=outage)
    client = browse("view_relayprocess")
    assert rows(client, "relayprocess") == [row.pk]
    page = client.get(f"{ROOT}relayprocess/{row.pk}/change/").content.decode()
    assert "default: the broker cannot be reached" in page


@pytest.mark.parametrize(
    "model",
    ["processedmessage", "externalcall", "storedresponse", "aggregatecursor", "relayprocess"],
)
def test_nobody_edits_them_and_no_other_look_up_or_order_is_taken(model, browse):
    client = browse(*[f"{what}_{model}" for what in ("view", "add", "change", "delete")])
    assert client.get(f"{ROOT}{model}/").status_code == 200
    assert client.get(f"{ROOT}{model}/?o=1").status_code == 200
    assert client.get(f"{ROOT}{model}/?id__gt=0").status_code == 400
    assert client.get(f"{ROOT}{model}/add/").status_code == 403
    assert browse(f"change_{model}").get(f"{ROOT}{model}/").status_code == 403


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_every_list_comes_from_an_index(browse):
    now = timezone.now()
    for number in range(50):
        processed("ledger" if number % 2 else "mailer", processed_at=now - hours(number))
        called(CallState.UNKNOWN if number % 10 == 0 else CallState.SUCCEEDED)
        AggregateCursor.objects.create(
            consumer="ledger", aggregate_type="a", aggregate_id=str(number), sequence=1
        )
    client = browse(
        "view_processedmessage", "view_externalcall", "view_aggregatecursor", "view_storedresponse"
    )
    asked = {
        "processedmessage": ["", "?q=ledger", f"?q={uuid.uuid4()}"],
        "externalcall": ["", "?state=all", "?state=succeeded", f"?q={uuid.uuid4()}"],
        "aggregatecursor": ["", "?q=a:7"],
        "storedresponse": [""],
    }
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        cursor.execute("SET enable_seqscan = off")
    for model, queries in asked.items():
        for query in queries:
            with explained() as statements:
                rows(client, model, query)
            ours = [each for each in statements if f"django_outbox_{model}" in each.sql]
            assert ours
            assert not [each for each in ours if "Seq Scan" in each.plan], f"{model} {query}"


def test_everything_works_on_a_site_of_one_s_own(database, settings):
    settings.ROOT_URLCONF = __name__
    root = User.objects.create_superuser("root", password="x")
    client = Client()
    client.force_login(root)
    message = make(last_error="nack", aggregate_id="7", correlation_id="c")
    base = "/ops/django_outbox/outboxmessage/"
    pages = [client.get(f"{base}{tail}") for tail in ("", "dashboard/", f"{message.pk}/change/")]
    form = {"_selected_action": [message.pk]}
    pages.append(client.post(f"{base}act/requeue/", form))
    for page in pages:
        assert page.status_code == 200
        assert not re.search(r'"/admin/', page.content.decode())
    done = client.post(f"{base}act/requeue/", {**form, "confirmed": "1", "reason": "x"})
    assert done["Location"].startswith(base)
    assert LogEntry.objects.count() == 1
    assert client.post(f"{base}search/", {"text": "nobody"})["Location"] == base
    assert client.get(f"{base}4711/change/")["Location"] == base


class InvoicesOnly(OutboxMessageAdmin):
    def get_queryset(self, request):
        return super().get_queryset(request).filter(topic__startswith="invoice.")


def test_a_class_that_shows_less_hides_the_rest_everywhere(database, settings):
    mine = admin.AdminSite("mine")
    mine.register(OutboxMessage, InvoicesOnly)
    settings.ROOT_URLCONF = type("urls", (), {"urlpatterns": [path("admin/", mine.urls)]})
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="x"))
    shown = make(topic="invoice.issued", aggregate_id="7")
    hidden = make(topic="order.placed", aggregate_id="7")
    for query in ("", "?state=dead&topic=%23", "?aggregate=7"):
        assert rows(client, "outboxmessage", query) == [shown.pk], query
    base = f"{ROOT}outboxmessage/"
    assert client.get(f"{base}{hidden.pk}/change/")["Location"] == base
    assert client.post(f"{base}{hidden.pk}/reveal/").status_code == 404
    assert client.post(f"{base}search/", {"text": str(hidden.message_id)})["Location"] == base
    yes = {"confirmed": "1", "reason": "x"}
    client.post(f"{base}act/requeue/", {"_selected_action": [hidden.pk], **yes})
    client.post(f"{base}act/requeue/", {"everything": "1", "asked": "?state=dead", **yes})
    assert list(OutboxMessage.objects.pending()) == [shown]
