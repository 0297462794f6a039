"""The list: by state, filtered, searched; and nobody edits anything."""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

import pytest
from django.core.signals import got_request_exception
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.views.debug import ExceptionReporter

from django_outbox.admin.paging import COUNTED, CappedPaginator
from django_outbox.models import OutboxMessage, Status
from tests.conftest import EVERY_DATABASE
from tests.integration.admin.conftest import (
    LIST,
    NAME,
    TAX_ID,
    TOPIC,
    hours,
    in_flight,
    make,
    one_in_every_state,
)
from tests.support import services
from tests.support.threads import Worker, wait_for

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def shown(client: Any, query: str = "") -> set[str]:
    """The topics of the rows that the list shows."""
    page = client.get(f"{LIST}{query}")
    assert page.status_code == 200
    return {message.topic for message in page.context["cl"].result_list}


@everywhere
def test_each_state_has_a_list_of_its_messages(browse):
    messages = one_in_every_state()
    client = browse("view")
    assert shown(client) == {message.topic for message in messages.values()}
    for state, message in messages.items():
        expected = {message.topic}
        if state == "ready":
            expected |= {"a.blocked"}  # due, and it shows as blocked
        assert shown(client, f"?state={state}") == expected, state


@everywhere
def test_a_row_says_what_state_its_message_is_in(browse):
    one_in_every_state()
    page = browse("view").get(LIST).content.decode()
    rows = re.findall(
        r"a\.(\w+) <span class=\"outbox-id\">.*?outbox-state outbox-(\w+)", page, re.S
    )
    assert len(rows) == 8
    assert all(topic == state for topic, state in rows)


@everywhere
def test_topic_error_and_time_of_creation_narrow_the_list(browse):
    old = timezone.now() - hours(48)
    make(topic="invoice.issued", last_error="nack", created_at=old)
    make(topic="invoice.issued.late", last_error="no queue is bound")
    make(topic="order.placed", last_error="Nack by the broker")
    client = browse("view")
    assert shown(client, "?topic=invoice.%23") == {"invoice.issued", "invoice.issued.late"}
    assert shown(client, "?topic=invoice.issued") == {"invoice.issued"}
    assert shown(client, "?state=dead&error=NACK") == {"invoice.issued", "order.placed"}
    yesterday = f"{timezone.now() - hours(24):%Y-%m-%dT%H:%M}"
    assert shown(client, f"?until={yesterday}") == {"invoice.issued"}
    assert shown(client, f"?since={yesterday}&topic=invoice.%23") == {"invoice.issued.late"}


def test_times_are_asked_for_and_shown_in_the_current_time_zone(browse, settings):
    settings.TIME_ZONE = "Europe/Istanbul"
    make(topic="a.b", created_at=timezone.datetime.fromisoformat("2026-06-01T10:00:00+00:00"))
    client = browse("view")
    assert shown(client, "?since=2026-06-01T13:00") == {"a.b"}
    assert shown(client, "?since=2026-06-01T13:01") == set()
    page = client.get(LIST).content.decode()
    assert re.search(r'<time datetime="2026-06-01T10:00:00\+00:00">[^<]* 13:00:00</time>', page)


@pytest.mark.parametrize("query", ["?topic=in*oice", "?since=tomorrow", "?state=unheard-of"])
def test_what_cannot_be_asked_for_shows_nothing_and_says_why(query, browse):
    make()
    page = browse("view").get(f"{LIST}{query}")
    assert page.context["cl"].result_count == 0
    if "state" not in query:
        assert "errorlist" in page.content.decode()


@pytest.mark.parametrize("query", ["?payload__contains=x", "?topic__contains=x", "?status=dead"])
def test_look_ups_that_would_read_the_whole_table_are_refused(query, browse):
    assert browse("view").get(f"{LIST}{query}").status_code == 400


def test_no_other_order_than_that_of_an_index_can_be_asked_for(browse):
    for topic in ("b.b", "a.a"):
        make(topic=topic)
    page = browse("view").get(f"{LIST}?o=1")
    assert [message.topic for message in page.context["cl"].result_list] == ["a.a", "b.b"]
    assert "ORDER BY" not in str(page.context["cl"].queryset.query).replace(
        'ORDER BY "django_outbox_outboxmessage"."id" DESC', ""
    )


@everywhere
def test_the_list_takes_three_statements_and_fetches_no_payload(browse):
    make(topic="invoice.issued")
    client = browse("view")
    for query in ("", "?state=dead&topic=invoice.*", "?aggregate=invoice:7", "?state=blocked"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"{LIST}{query}").status_code == 200
        ours = [q["sql"] for q in queries if "django_outbox_outboxmessage" in q["sql"]]
        assert len(ours) <= 3, query
        assert not any("payload" in sql or "headers" in sql for sql in ours)
        assert all(f"LIMIT {COUNTED}" in sql for sql in ours if "COUNT(" in sql)


def test_a_table_beyond_the_cap_is_counted_up_to_it(browse, monkeypatch):
    for _ in range(5):
        make()
    monkeypatch.setattr("django_outbox.admin.paging.COUNTED", 3)
    assert CappedPaginator(OutboxMessage.objects.order_by("-id"), 2).num_pages == 2
    assert "3 messages and more" in browse("view").get(LIST).content.decode()


@everywhere
def test_what_lies_behind_the_window_is_not_looked_through_and_the_list_says_so(
    browse, monkeypatch
):
    for number in range(6):
        make(
            Status.PUBLISHED,
            topic=f"invoice.no{number}",
            published_at=timezone.now() - hours(number),
        )
    client = browse("view")
    cut = "There are more messages than are looked through"
    page = client.get(f"{LIST}?state=published&topic=invoice.*")
    assert (page.context["cl"].result_count, cut in page.content.decode()) == (6, False)
    monkeypatch.setattr("django_outbox.admin.window.WINDOW", 2)
    page = client.get(f"{LIST}?state=published&topic=invoice.*")
    assert {m.topic for m in page.context["cl"].result_list} == {f"invoice.no{n}" for n in range(2)}
    assert cut in page.content.decode()
    # Without a filter an index gives the whole list.
    page = client.get(f"{LIST}?state=published")
    assert (page.context["cl"].result_count, cut in page.content.decode()) == (6, False)


def search(client: Any, text: str) -> Any:
    return client.post(f"{LIST}search/", {"text": text})


@everywhere
def test_a_message_is_found_by_its_id(browse):
    wanted, _other = make(), make(Status.PENDING)
    answer = search(browse("view"), f" {wanted.message_id} ")
    assert answer["Location"] == f"{LIST}{wanted.pk}/change/"


@everywhere
@pytest.mark.parametrize("status", [Status.PENDING, Status.PUBLISHED])
def test_messages_are_found_by_aggregate_and_correlation_id(status, browse):
    make(status, topic="a.mine", aggregate_type="invoice", aggregate_id="7", correlation_id="req-1")
    make(status, topic="a.other", aggregate_type="order", aggregate_id="7")
    make(status, topic="a.urn", aggregate_type="x", aggregate_id="urn:isbn:1")
    make(status, topic="a.none")
    client = browse("view")
    for text, expected in {
        "invoice:7": {"a.mine"},
        "7": {"a.mine", "a.other"},
        "urn:isbn:1": {"a.urn"},
        "req-1": {"a.mine"},
    }.items():
        query = search(client, text)["Location"].partition("?")[2]
        assert shown(client, f"?{query}") == expected, text
        assert (
            shown(client, f"?{query}&state={status}") == expected if status != "pending" else True
        )


@everywhere
def test_what_is_not_found_is_not_repeated_in_an_address(browse):
    answer = search(browse("view"), "Jane Doe")
    assert answer["Location"] == LIST


@everywhere
def test_a_person_is_found_by_a_value_that_gets_nowhere(browse, person, caplog):
    make(topic="a.other")
    client = browse("view")
    caplog.set_level("DEBUG")
    answer = search(client, "987 654-32109")
    address = answer["Location"]
    assert shown(client, address.removeprefix(LIST)) == {TOPIC}
    page = client.get(address)
    everything = f"{address} {page.content.decode()} {dict(answer.headers)} {caplog.text}"
    assert not any(part in everything for part in (TAX_ID, "987 654", NAME))


def test_a_search_that_the_database_breaks_off_repeats_the_value_nowhere(browse, caplog):
    client = browse("view")
    client.raise_request_exception = False
    locked, done = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE django_outbox_outboxmessage IN ACCESS EXCLUSIVE MODE")
            locked.set()
            wait_for(done, "the search was made")

    locking = Worker(lock)
    wait_for(locked, "the table is locked")
    reports: list[str] = []

    def report(request: Any, **kwargs: Any) -> None:
        reports.append(ExceptionReporter(request, *sys.exc_info()).get_traceback_html())

    got_request_exception.connect(report)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '100ms'")
        answer = search(client, "Jane Doe")
    finally:
        got_request_exception.disconnect(report)
        done.set()
        locking.result()
        connection.close()
    told = client.get(answer["Location"]).content.decode()
    assert "The database could not be searched (OperationalError)" in told
    assert "OperationalError" in caplog.text
    assert not any("Jane Doe" in text for text in [told, caplog.text, *reports])


def test_without_indexed_members_no_value_of_a_person_is_asked_for(browse):
    help_text = "a whole value of a person"
    assert help_text not in browse("view").get(LIST).content.decode()


def test_with_indexed_members_a_value_of_a_person_is_asked_for(browse, person_registered):
    assert "a whole value of a person" in browse("view").get(LIST).content.decode()


def test_the_search_is_for_those_who_may_see_messages(browse):
    assert search(browse(), "x").status_code == 403


@pytest.mark.parametrize("permissions", [("view",), ("view", "change", "delete", "add", "requeue")])
def test_nobody_edits_a_message(permissions, browse):
    message = make()
    client = browse(*permissions)
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{message.pk}/change/", {"topic": "other"}).status_code == 403
    assert client.post(f"{LIST}{message.pk}/delete/", {"post": "yes"}).status_code == 403
    form = {"action": "delete_selected", "_selected_action": [message.pk], "post": "yes"}
    client.post(LIST, form)
    message.refresh_from_db()
    assert message.topic == "invoice.dead"


def test_who_may_not_see_messages_does_not(browse):
    message = make()
    for client in (browse(), browse("change")):
        for path in ("", f"{message.pk}/change/", "dashboard/", "dashboard/panel/"):
            assert client.get(f"{LIST}{path}").status_code == 403


def test_what_a_message_says_is_escaped(browse):
    message = make(topic="<b>t</b>", last_error="<script>e</script>", aggregate_id="<i>a</i>")
    make(Status.PENDING, payload={"<u>k</u>": "</pre><script>"}, correlation_id="<s>c</s>")
    client = browse("view")
    pages = [LIST, f"{LIST}dashboard/"]
    pages += [f"{LIST}{each.pk}/change/" for each in OutboxMessage.objects.all()]
    for path in pages:
        page = client.get(path).content.decode()
        for tag in ("<b>", "<script>e", "<i>a", "<u>", "</pre><script>", "<s>c"):
            assert tag not in page, path
    assert "&lt;script&gt;e" in client.get(f"{LIST}{message.pk}/change/").content.decode()


def test_the_list_reads_where_the_outbox_is_written(browse, outbox_settings):
    """A replica would show what was dead a while ago."""
    services.require(services.POSTGRESQL_URL, "PostgreSQL")  # beside SQLite: two databases
    message = make()
    client = browse("view")
    outbox_settings(DATABASE="sqlite")
    assert str(message.message_id) not in client.get(LIST).content.decode()


@everywhere
def test_a_lease_that_is_over_is_no_flight(browse):
    in_flight(topic="a.flying")
    in_flight(topic="a.fallen", lease_expires_at=timezone.now() - hours(1))
    client = browse("view")
    assert shown(client, "?state=in_flight") == {"a.flying"}
    assert shown(client, "?state=retrying") == {"a.fallen"}
