"""Requeue, discard and replay: asked for first, with a reason, noted down, and never in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections

from django_outbox.admin.acts import ACTS, Done
from django_outbox.models import OutboxMessage, Status
from tests.conftest import EVERY_DATABASE
from tests.integration.admin.conftest import LIST, in_flight, make

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
REASON = "the queue is bound now"


def fields_of(page: Any) -> dict[str, Any]:
    """The hidden inputs of the confirmation."""
    fields: dict[str, list[str]] = {}
    for name, value in page.context["chosen"].fields():
        fields.setdefault(name, []).append(value)
    return fields


def ask(client: Any, act: str, *messages: OutboxMessage) -> Any:
    """Choose in the list, press Go."""
    form = {"action": f"{act}_selected", "_selected_action": [m.pk for m in messages]}
    return client.post(LIST, {**form, "index": 0})


def confirm(client: Any, act: str, page: Any, reason: str = REASON, **more: Any) -> Any:
    form = {**fields_of(page), "confirmed": "1", "reason": reason, **more}
    return client.post(f"{LIST}act/{act}/", form, follow=True)


def everything(client: Any, act: str, query: str) -> Any:
    return client.post(f"{LIST}act/{act}/", {"everything": "1", "asked": query})


def statuses(*messages: OutboxMessage) -> list[str]:
    for message in messages:
        message.refresh_from_db()
    return [message.status for message in messages]


@everywhere
def test_dead_messages_are_requeued_and_the_rest_is_left_alone(browse):
    dead, published, flying = make(attempts=10), make(Status.PUBLISHED), in_flight()
    client = browse("view", "requeue")
    page = ask(client, "requeue", dead, published, flying)
    asked = page.content.decode()
    assert "1 message will be changed." in asked
    assert "1 is in flight and will be left alone." in asked
    assert "1 is in another state and will be left alone." in asked
    assert statuses(dead) == [Status.DEAD]
    done = confirm(client, "requeue", page).content.decode()
    assert "1 message requeued. 1 is in flight and was left alone. 1 was not dead." in done
    assert statuses(dead, published, flying) == [Status.PENDING, Status.PUBLISHED, Status.PENDING]
    assert (dead.attempts, flying.attempts, flying.lease_token is None) == (0, 1, False)


@everywhere
def test_messages_are_discarded_and_keep_the_reason(browse):
    dead, pending, flying = make(last_error="nack"), make(Status.PENDING), in_flight()
    client = browse("view", "discard")
    confirm(client, "discard", ask(client, "discard", dead, pending, flying))
    assert statuses(dead, pending, flying) == [Status.DISCARDED] * 2 + [Status.PENDING]
    assert dead.last_error == f"nack\ndiscarded: {REASON}"


@everywhere
def test_published_messages_are_replayed_under_the_same_message_id(browse):
    published, dead = make(Status.PUBLISHED), make()
    client = browse("view", "replay")
    message_id = published.message_id
    confirm(client, "replay", ask(client, "replay", published, dead))
    assert statuses(published, dead) == [Status.PENDING, Status.DEAD]
    assert published.message_id == message_id


@pytest.mark.parametrize("act", ["requeue", "discard", "replay"])
def test_each_act_needs_its_own_permission(act, browse):
    message = make(Status.PUBLISHED if act == "replay" else Status.DEAD)
    others = {"view", "change", "delete", "requeue", "discard", "replay", "reveal"} - {act}
    client = browse(*others)
    for path in (f"{LIST}?state={message.status}", f"{LIST}{message.pk}/change/"):
        page = client.get(path).content.decode()
        assert f"{act}_selected" not in page
        assert f"act/{act}/" not in page
    form = {"_selected_action": [message.pk], "confirmed": "1", "reason": REASON}
    before = message.status
    assert client.post(f"{LIST}act/{act}/", form).status_code == 403
    assert client.post(f"{LIST}act/{act}/", {"_selected_action": [message.pk]}).status_code == 403
    ask(client, act, message)
    assert statuses(message) == [before]
    assert not LogEntry.objects.exists()


def test_nothing_is_done_by_get_without_a_token_or_without_a_reason(browse):
    dead = make()
    client = browse("view", "requeue")
    form = {"_selected_action": [dead.pk], "confirmed": "1", "reason": REASON}
    assert client.get(f"{LIST}act/requeue/", form).status_code == 302
    page = confirm(client, "requeue", ask(client, "requeue", dead), reason="  ")
    assert "This field is required" in page.content.decode()
    client.handler.enforce_csrf_checks = True
    assert client.post(f"{LIST}act/requeue/", form).status_code == 403
    assert statuses(dead) == [Status.DEAD]


def test_each_chosen_message_has_an_entry_with_the_reason_in_the_admin_log(browse):
    first, second = make(), make()
    client = browse("view", "requeue", name="ayse")
    confirm(client, "requeue", ask(client, "requeue", first, second, in_flight()))
    entries = LogEntry.objects.order_by("object_id")
    assert [(e.user.username, e.object_id) for e in entries] == [
        ("ayse", str(first.pk)),
        ("ayse", str(second.pk)),
    ]
    assert {e.get_change_message() for e in entries} == {f"Requeue: {REASON}"}
    page = client.get(f"{LIST}{first.pk}/change/").content.decode()
    assert f"Requeue: {REASON}" in page
    assert "by ayse" in page


def test_what_cannot_be_noted_down_does_not_happen(browse, monkeypatch):
    dead = make()
    client = browse("view", "requeue")
    page = ask(client, "requeue", dead)

    def refuses(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(LogEntry.objects, "log_actions", refuses)
    client.raise_request_exception = False
    assert confirm(client, "requeue", page).status_code == 500
    assert statuses(dead) == [Status.DEAD]


@everywhere
def test_everything_that_matches_is_what_the_filter_shows(browse, monkeypatch):
    monkeypatch.setattr("django_outbox.admin.acting.CHUNK", 2)
    mine = [make(topic="invoice.issued", last_error="nack") for _ in range(5)]
    other = make(topic="order.placed", last_error="nack")
    client = browse("view", "requeue", name="ayse")
    query = "?state=dead&topic=invoice.*&error=nack"
    assert "Requeue everything that matches" in client.get(f"{LIST}{query}").content.decode()
    page = everything(client, "requeue", query)
    asked = page.content.decode()
    assert "5 messages will be changed." in asked
    assert all(part in asked for part in ("invoice.issued", "invoice.*", "nack", "dead"))
    late = make(topic="invoice.issued", last_error="nack")
    done = confirm(client, "requeue", page)
    assert "5 messages requeued." in done.content.decode()
    assert done.redirect_chain[-1][0].startswith(f"{LIST}?state=dead")
    assert statuses(*mine) == [Status.PENDING] * 5
    # What came after the confirmation was asked for has not been agreed to.
    assert statuses(other, late) == [Status.DEAD] * 2
    [entry] = LogEntry.objects.all()
    assert "invoice.*" in entry.object_repr
    assert (entry.object_id, entry.get_change_message()) == (None, f"Requeue: {REASON}")


def test_the_admin_log_keeps_the_whole_filter_and_the_process_log_none_of_it(browse, caplog):
    caplog.set_level("INFO", "django_outbox")
    make(aggregate_type="customer", aggregate_id="jane@example.com", last_error="n" * 250)
    client = browse("view", "requeue")
    query = f"?state=dead&error={'n' * 220}&aggregate=customer:jane@example.com"
    done = confirm(client, "requeue", everything(client, "requeue", query))
    assert "1 message requeued." in done.content.decode()
    [entry] = LogEntry.objects.all()
    assert f"Error: {'n' * 220}; Aggregate: customer:jane@example.com" in entry.change_message
    assert f"entry {entry.pk} of the admin log" in caplog.text
    assert "jane" not in caplog.text


def test_everything_is_at_most_a_window_at_a_time(browse, monkeypatch):
    for _ in range(5):
        make()
    monkeypatch.setattr("django_outbox.admin.window.WINDOW", 2)
    monkeypatch.setattr("django_outbox.admin.acting.WINDOW", 2)
    client = browse("view", "discard")
    confirm(client, "discard", everything(client, "discard", "?state=dead"))
    assert OutboxMessage.objects.discarded().count() == 2


def test_django_s_own_select_all_is_asked_about_too(browse):
    dead = [make() for _ in range(3)]
    client = browse("view", "requeue")
    form = {"action": "requeue_selected", "_selected_action": [dead[0].pk], "select_across": "1"}
    page = client.post(f"{LIST}?state=dead", form)
    assert "3 messages will be changed." in page.content.decode()
    confirm(client, "requeue", page)
    assert OutboxMessage.objects.pending().count() == 3


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"_selected_action": ["x"]},
        {"_selected_action": [str(2**63)]},
        {"_selected_action": ["-1"]},
        {"_selected_action": [str(n) for n in range(1001)]},
        {"everything": "1", "asked": ""},
        {"everything": "1", "asked": "?state=unheard-of"},
        {"everything": "1", "asked": "?topic=a.*"},
        {"everything": "1", "asked": "?state=published"},
        {"everything": "1", "asked": "?state=dead", "up_to": "x"},
    ],
)
def test_forms_that_are_none_of_ours_are_refused(form, browse):
    make()
    client = browse("view", "requeue")
    form = {**form, "confirmed": "1", "reason": REASON}
    assert client.post(f"{LIST}act/requeue/", form).status_code == 400
    assert OutboxMessage.objects.dead().count() == 1


def test_there_are_no_other_acts(browse):
    assert browse("view").post(f"{LIST}act/delete/", {}).status_code == 404


def test_from_a_message_s_page_the_way_leads_back_to_it(browse):
    dead = make()
    client = browse("view", "requeue")
    form = {"_selected_action": [dead.pk], "from_page": "1"}
    page = client.post(f"{LIST}act/requeue/", form)
    done = confirm(client, "requeue", page, from_page="1")
    assert done.redirect_chain[-1][0] == f"{LIST}{dead.pk}/change/"


@everywhere
def test_confirming_twice_changes_nothing_more(browse):
    dead = make()
    client = browse("view", "requeue")
    page = ask(client, "requeue", dead)
    confirm(client, "requeue", page)
    assert (
        "0 messages requeued. 1 was not dead." in confirm(client, "requeue", page).content.decode()
    )


def test_chunks_commit_one_by_one_also_with_atomic_requests(browse, monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    in_one: list[bool] = []

    def carry_out(*args: Any) -> Done:
        in_one.append(connections["default"].in_atomic_block)
        return Done()

    monkeypatch.setattr("django_outbox.admin.acting_views.carry_out", carry_out)
    client = browse("view", "requeue")
    confirm(client, "requeue", ask(client, "requeue", make()))
    assert in_one == [False]


def test_what_no_longer_matches_when_its_turn_comes_is_left_alone(browse, monkeypatch):
    """Somebody else has requeued it since: it is pending now, and nobody has agreed to discard that."""
    dead = [make() for _ in range(2)]
    client = browse("view", "discard")
    page = everything(client, "discard", "?state=dead")
    act = ACTS["discard"]

    def requeued_first(messages: Any, reason: str) -> Done:
        OutboxMessage.objects.filter(pk=dead[1].pk).update(status=Status.PENDING)
        return act.run(messages, reason)

    monkeypatch.setitem(ACTS, "discard", replace(act, run=requeued_first))
    confirm(client, "discard", page)
    assert statuses(*dead) == [Status.DISCARDED, Status.PENDING]
