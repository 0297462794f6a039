"""The person on call: sees what is stuck, reads why, presses the button, and needs no SQL."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from django_outbox.models import OutboxMessage, RelayProcess, Status
from django_outbox.relay.loop import Relay
from django_outbox.testing import ScriptedPublisher
from tests.browser.conftest import LIST
from tests.integration.admin.conftest import NAME, TAX_ID, make

WHY = "no queue is bound for its topic: 312 NO_ROUTE"


def confirm(page: Page, act: str, reason: str = "the queue is bound now") -> None:
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name=act, exact=True).click()


@pytest.mark.parametrize("script", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_a_dead_message_is_found_understood_requeued_and_published(script: bool, sit_down: Any):
    dead = make(topic="invoice.issued", last_error=WHY, attempts=10, size=40)
    somebody = sit_down("view", "requeue", java_script_enabled=script)
    page = somebody.visit() if script else somebody.page
    if not script:
        page.goto(f"{somebody.address}{LIST}")
        page.get_by_role("link", name="Open the dashboard").click()
    page.get_by_role("link", name="Look at them").click()
    page.get_by_role("link", name=re.compile("invoice.issued.*" + str(dead.message_id))).click()
    expect(page.get_by_text(WHY)).to_be_visible()
    expect(page.get_by_text("The broker had nowhere to put it")).to_be_visible()
    page.get_by_role("button", name="Requeue…").click()
    expect(page.get_by_text("1 message will be changed.")).to_be_visible()
    confirm(page, "Requeue")
    expect(page.get_by_text("1 message requeued.")).to_be_visible()
    expect(page.get_by_text("Requeue: the queue is bound now")).to_be_visible()
    publisher = ScriptedPublisher()
    Relay(publisher_for=lambda alias: publisher).run_once()
    page.reload()
    expect(page.locator(".outbox-now .outbox-state")).to_have_text("published")
    assert [message.id for message in publisher.received] == [dead.message_id]
    assert somebody.complaints == []


def test_everything_that_matches_is_confirmed_first(sit_down: Any):
    for _ in range(3):
        make(topic="invoice.issued", last_error=WHY)
    other = make(topic="order.placed", last_error="nack")
    somebody = sit_down("view", "discard")
    page = somebody.visit(f"{LIST}?state=dead")
    page.get_by_label("Topic", exact=False).first.fill("invoice.*")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("button", name="Discard everything that matches…").click()
    expect(page.get_by_text("3 messages will be changed.")).to_be_visible()
    assert OutboxMessage.objects.dead().count() == 4
    page.get_by_role("link", name="No, take me back").click()
    expect(page).to_have_url(re.compile(r"state=dead.*topic=invoice"))
    page.get_by_role("button", name="Discard everything that matches…").click()
    confirm(page, "Discard", "test data")
    expect(page.get_by_text("3 messages discarded.")).to_be_visible()
    assert list(OutboxMessage.objects.dead()) == [other]
    assert somebody.complaints == []


def test_selected_messages_are_chosen_by_their_boxes(sit_down: Any):
    first, second = make(topic="a.first"), make(topic="a.second")
    somebody = sit_down("view", "requeue")
    page = somebody.visit(f"{LIST}?state=dead")
    page.locator(f'input[name="_selected_action"][value="{first.pk}"]').check()
    page.locator("select[name=action]").select_option("requeue_selected")
    page.get_by_role("button", name="Go", exact=True).click()
    confirm(page, "Requeue")
    expect(page.get_by_text("1 message requeued.")).to_be_visible()
    second.refresh_from_db()
    assert second.status == Status.DEAD
    assert somebody.complaints == []


def test_personal_data_is_revealed_to_those_who_may_see_it_only(person: Any, sit_down: Any):
    path = f"{LIST}{person.pk}/change/"
    page = sit_down("view").visit(path)
    expect(page.get_by_text("Personal members are masked.")).to_be_visible()
    expect(page.get_by_role("button", name="Reveal personal data")).to_have_count(0)
    somebody = sit_down("view", "reveal")
    page = somebody.visit(path)
    expect(page.locator("body")).not_to_contain_text(NAME)
    page.get_by_role("button", name="Reveal personal data").click()
    expect(page.locator("mark").first).to_contain_text(NAME)
    assert somebody.complaints == []


def test_a_person_is_searched_for_and_the_value_gets_into_no_address(person: Any, sit_down: Any):
    make(topic="a.other")
    somebody = sit_down("view")
    page = somebody.visit()
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    page.get_by_label("Search").first.fill(TAX_ID)
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    assert not any(TAX_ID in address for address in [*addresses, page.url])
    assert TAX_ID not in page.content()
    assert TAX_ID not in page.title()


def tile(page: Page, state: str) -> Any:
    return page.locator(f".outbox-tile.outbox-{state} .outbox-number")


@pytest.mark.parametrize("path", [f"{LIST}dashboard/", LIST])
def test_the_dashboard_refreshes_itself(path: str, sit_down: Any):
    somebody = sit_down("view")
    page = somebody.visit(path)
    expect(tile(page, "dead")).to_have_text("0")
    make()
    expect(tile(page, "dead")).to_have_text("1")
    assert somebody.complaints == []


def test_a_page_that_nobody_sees_asks_for_nothing(sit_down: Any):
    somebody = sit_down("view")
    # Chromium without a window is always visible: the page is told otherwise.
    somebody.page.add_init_script(
        "window.hide = (hidden) => {"
        " Object.defineProperty(document, 'visibilityState',"
        "  {configurable: true, value: hidden ? 'hidden' : 'visible'});"
        " document.dispatchEvent(new Event('visibilitychange')); };"
    )
    asked: list[str] = []
    answered: list[str] = []
    somebody.page.on("request", lambda request: asked.append(request.url))
    somebody.page.on("requestfinished", lambda request: answered.append(request.url))
    somebody.page.on("requestfailed", lambda request: answered.append(request.url))
    page = somebody.visit(f"{LIST}dashboard/")
    with page.expect_response("**/panel/"):
        pass
    page.evaluate("hide(true)")
    while len(answered) < len(asked):  # one may have been under way
        page.wait_for_timeout(50)
    make()
    asked.clear()
    page.wait_for_timeout(1_500)  # several times as long as between two refreshes
    assert asked == []
    expect(tile(page, "dead")).to_have_text("0")
    page.evaluate("hide(false)")
    expect(tile(page, "dead")).to_have_text("1")


def test_who_is_logged_out_is_told_that_the_figures_are_old(sit_down: Any):
    somebody = sit_down("view")
    page = somebody.visit(f"{LIST}dashboard/")
    expect(page.get_by_text("Not refreshed")).to_be_hidden()
    page.context.clear_cookies()
    expect(page.get_by_text("Not refreshed")).to_be_visible()
    expect(tile(page, "dead")).to_have_text("0")


def test_a_refresh_leaves_the_focus_where_it_is(sit_down: Any):
    RelayProcess.objects.create(name="host:1")
    make()
    page = sit_down("view").visit(f"{LIST}dashboard/")
    link = page.get_by_role("link", name="Look at them")
    link.focus()
    make()
    expect(tile(page, "dead")).to_have_text("2")
    expect(link).to_be_focused()
