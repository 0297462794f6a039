"""A message's page: its life, its neighbours, its payload masked; revealing it needs more."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

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

everywhere = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
OLD = "2026a:{state}:{key}"
KEY = "ViH1cIZhaByRskHXdEwbcC/ihLuaMwu7j3wdF3W6uYs="
NEW = "2027a:primary:o1dJz1bJ4bNq9RkXwzKD8l8Xrme4S8s0mAKK5s0q2Wc="


def page_of(client: Any, message: OutboxMessage) -> str:
    page = client.get(f"{LIST}{message.pk}/change/")
    assert page.status_code == 200
    return page.content.decode()


def reveal(client: Any, message: OutboxMessage) -> Any:
    return client.post(f"{LIST}{message.pk}/reveal/")


def life(page: str) -> list[str]:
    return re.findall(r'<li class="outbox-event[^"]*"><strong>(.*?)</strong>', page)


@everywhere
def test_a_page_tells_the_life_of_a_message_in_any_state(browse):
    messages = one_in_every_state()
    client = browse("view")
    lives = {state: life(page_of(client, message)) for state, message in messages.items()}
    assert lives == {
        "ready": ["Enqueued", "Due"],
        "scheduled": ["Enqueued", "Scheduled"],
        "retrying": ["Enqueued", "2 attempts", "Next attempt"],
        "in_flight": ["Enqueued", "1 attempt", "In flight"],
        "blocked": ["Enqueued", "Blocked"],
        "dead": ["Enqueued", "Dead"],
        "published": ["Enqueued", "Published"],
        "discarded": ["Enqueued", "Discarded"],
    }


@everywhere
def test_a_blocked_message_names_the_one_that_blocks_it_and_that_one_what_waits(browse):
    mine = {"aggregate_type": "invoice", "aggregate_id": "7"}
    later = timezone.now() + hours(1)
    head = make(Status.PENDING, attempts=2, available_at=later, **mine)
    behind = [make(Status.PENDING, **mine) for _ in range(3)]
    make(Status.PENDING, aggregate_type="invoice", aggregate_id="8")
    client = browse("view")
    assert f"{LIST}{head.pk}/change/" in page_of(client, behind[1])
    assert "Blocked by" in page_of(client, behind[1])
    assert "Waiting behind it: 3 messages of this aggregate." in page_of(client, head)
    assert "Blocked by" not in page_of(client, head)


@everywhere
def test_a_dead_message_that_blocks_is_named(browse, outbox_settings):
    outbox_settings(ROUTES=[("#", {"on_dead": "block"})])
    mine = {"aggregate_type": "invoice", "aggregate_id": "7"}
    head, behind = make(**mine), make(Status.PENDING, **mine)
    client = browse("view")
    assert f"{LIST}{head.pk}/change/" in page_of(client, behind)
    assert "Waiting behind it: 1 message of this aggregate." in page_of(client, head)


def test_more_pending_messages_than_are_looked_through_give_the_least(browse, monkeypatch):
    monkeypatch.setattr("django_outbox.admin.neighbours.LOOKED_THROUGH", 2)
    mine = {"aggregate_type": "invoice", "aggregate_id": "7"}
    head = make(**mine)
    for _ in range(4):
        make(Status.PENDING, **mine)
    assert "Waiting behind it: at least" in page_of(browse("view"), head)


def test_the_last_error_is_explained(browse):
    message = make(last_error="no queue is bound for its topic: 312 NO_ROUTE")
    page = page_of(browse("view"), message)
    assert "no queue is bound for its topic: 312 NO_ROUTE" in page
    assert "outbox_topology" in page


def test_a_message_is_shown_with_its_payload_and_headers(browse):
    page = page_of(browse("view"), make(payload={"total": "119.00"}))
    assert "&quot;total&quot;: &quot;119.00&quot;" in page
    assert "acme" in page


def test_a_message_that_is_gone_leads_back_to_the_list(browse):
    client = browse("view")
    for pk in (4711, "x"):
        answer = client.get(f"{LIST}{pk}/change/", follow=True)
        assert answer.redirect_chain[-1][0] == LIST
        assert "There is no such message." in answer.content.decode()


def test_an_act_that_a_message_cannot_take_is_not_offered(browse):
    client = browse("view", "requeue", "discard", "replay")
    offered = {
        state: set(re.findall(r"/act/(\w+)/", page_of(client, message)))
        for state, message in one_in_every_state().items()
    }
    assert offered["dead"] == {"requeue", "discard"}
    assert offered["published"] == {"replay"}
    assert offered["in_flight"] == offered["discarded"] == set()
    for state in ("ready", "scheduled", "retrying", "blocked"):
        assert offered[state] == {"discard"}


@everywhere
def test_personal_members_are_masked(browse, person):
    page = page_of(browse("view"), person)
    assert "sealed under the key 2026a" in page
    assert "&quot;country&quot;: &quot;TR&quot;" in page
    assert not any(part in page for part in (NAME, TAX_ID, "eyJ"))


@everywhere
def test_marked_members_are_masked_even_where_they_were_never_sealed(browse, person_registered):
    plain = {"id": 1, "person": {"name": NAME, "tax_id": TAX_ID, "country": "TR"}}
    page = page_of(browse("view"), make(topic=TOPIC, schema_version=9, payload=plain))
    assert "&quot;country&quot;: &quot;TR&quot;" in page
    assert not any(part in page for part in (NAME, TAX_ID))


def test_sealed_members_of_topics_that_nobody_has_registered_are_masked(browse, person):
    OutboxMessage.objects.filter(pk=person.pk).update(topic="unheard.of")
    page = page_of(browse("view"), person)
    assert "sealed under the key 2026a" in page
    assert "eyJ" not in page


@everywhere
def test_personal_data_is_revealed_to_who_may_see_it(browse, person, caplog):
    caplog.set_level(logging.DEBUG)
    client = browse("view", "reveal", name="ayse")
    assert "Reveal personal data" in page_of(client, person)
    answer = reveal(client, person)
    page = answer.content.decode()
    assert f'<mark class="outbox-revealed">&quot;{NAME}&quot;</mark>' in page
    assert TAX_ID in page
    assert "no-store" in answer["Cache-Control"]
    [entry] = LogEntry.objects.all()
    assert (entry.user.username, entry.object_id) == ("ayse", str(person.pk))
    assert entry.get_change_message() == "Personal data revealed"
    noted = [record for record in caplog.records if record.name == "django_outbox.admin.audit"]
    assert [record.message_id for record in noted] == [str(person.message_id)]
    assert NAME not in caplog.text
    # And it is not there the next time.
    assert NAME not in page_of(client, person)


def test_revealing_needs_its_own_permission_and_a_post(browse, person):
    client = browse("view", "change", "requeue", "discard", "replay")
    assert "Reveal personal data" not in page_of(client, person)
    assert reveal(client, person).status_code == 403
    allowed = browse("view", "reveal")
    answer = allowed.get(f"{LIST}{person.pk}/reveal/")
    assert answer["Location"] == f"{LIST}{person.pk}/change/"
    without_view = browse("reveal")
    assert reveal(without_view, person).status_code == 403
    allowed.handler.enforce_csrf_checks = True
    assert reveal(allowed, person).status_code == 403
    assert not LogEntry.objects.exists()


def test_where_nothing_is_personal_there_is_nothing_to_reveal(browse):
    assert "Reveal personal data" not in page_of(browse("view", "reveal"), make())


@pytest.mark.parametrize(
    ("ring", "words"),
    [
        ([("disabled", KEY)], "is disabled in the keyring"),
        ([("destroyed", "fingerprint")], "has been destroyed; its values cannot be read again."),
        ([], "is not in the keyring"),
    ],
)
def test_a_member_whose_key_is_gone_says_which_key_and_shows_no_trace(
    ring, words, browse, person, settings
):
    from django_outbox.encryption.conf import keyring

    fingerprint = keyring().primary.fingerprint
    entries = [OLD.format(state=s, key=k.replace("fingerprint", fingerprint)) for s, k in ring]
    rings = {**settings.OUTBOX_ENCRYPTION["KEYRINGS"], "default": ",".join([*entries, NEW])}
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": rings}
    page = reveal(browse("view", "reveal"), person).content.decode()
    assert words in page
    assert "2026a" in page
    assert "Traceback" not in page
    assert NAME not in page
    assert "&quot;country&quot;: &quot;TR&quot;" in page


def test_a_message_in_flight_can_be_looked_at(browse):
    assert "host:1 has it" in page_of(browse("view"), in_flight())
