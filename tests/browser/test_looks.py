"""What the pages look like: readable in light, dark and at 400 px, and to those who do not see them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import Page, expect

from django_outbox.models import RelayProcess
from tests.browser.conftest import LIST
from tests.integration.admin.conftest import make, one_in_every_state

PAGES = ["list", "dead messages", "dashboard", "message", "revealed message", "confirmation"]
#: Of Django's own pages, not of what stands in them.
DJANGOS = ["#header", "#nav-sidebar", ".breadcrumbs", "#footer"]


@pytest.fixture
def everything(person: Any) -> dict[str, Any]:
    """Something of all that the pages can show."""
    since = (timezone.now() - timedelta(minutes=7)).isoformat()
    outage = {"default": {"reason": "the broker cannot be reached", "since": since}}
    RelayProcess.objects.create(name="host-with-a-rather-long-name.example.org:4711", topics="#")
    RelayProcess.objects.create(name="host:2", topics="#", breakers=outage)
    for topic in ("invoice.issued", "customer.address.changed.by.themselves"):
        make(topic=topic, last_error="no queue is bound for its topic: 312 NO_ROUTE", attempts=10)
    return {**one_in_every_state(), "person": person}


def open_page(somebody: Any, name: str, messages: dict[str, Any]) -> Page:
    paths = {
        "list": LIST,
        "dead messages": f"{LIST}?state=dead&topic=%23",
        "dashboard": f"{LIST}dashboard/",
        "message": f"{LIST}{messages['blocked'].pk}/change/",
        "revealed message": f"{LIST}{messages['person'].pk}/change/",
        "confirmation": f"{LIST}?state=dead",
    }
    page: Page = somebody.visit(paths[name])
    if name == "revealed message":
        page.get_by_role("button", name="Reveal personal data").click()
        page.locator("mark").first.wait_for()
    if name == "confirmation":
        page.get_by_role("button", name="Requeue everything that matches…").click()
        page.get_by_label("Reason").wait_for()
    return page


EVERY_PERMISSION = ("view", "requeue", "discard", "replay", "reveal")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_breaks_no_rule_of_axe_and_of_the_policy(
    name: str, sit_down: Any, everything: dict[str, Any]
):
    somebody = sit_down(*EVERY_PERMISSION)
    page = open_page(somebody, name, everything)
    assert somebody.complaints == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(200)  # the admin fades colours in: axe would look at one in between
        found = Axe().run(page, context={"exclude": [[each] for each in DJANGOS]})
        assert found.violations_count == 0, f"{scheme}\n{found.generate_report()}"


@pytest.mark.parametrize("name", PAGES)
def test_at_400_px_nothing_has_to_be_scrolled_sideways(
    name: str, sit_down: Any, everything: dict[str, Any]
):
    somebody = sit_down(*EVERY_PERMISSION, viewport={"width": 400, "height": 800})
    open_page(somebody, name, everything)
    assert somebody.fits()


def background(page: Page) -> str:
    return str(
        page.evaluate("getComputedStyle(document.querySelector('.outbox-tile')).backgroundColor")
    )


def test_the_dashboard_follows_the_system_s_and_the_admin_s_own_theme(
    sit_down: Any, everything: dict[str, Any]
):
    somebody = sit_down("view", color_scheme="light")
    page = open_page(somebody, "dashboard", everything)
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    assert background(page) == light
    page.emulate_media(color_scheme="light")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert background(page) == dark


def test_the_chart_has_a_name_and_colours_of_its_own(sit_down: Any, everything: dict[str, Any]):
    page = open_page(sit_down("view"), "dashboard", everything)
    chart = page.get_by_role("img", name="Published in each of the last 30 minutes, at most 1")
    expect(chart).to_be_visible()
    fill = page.evaluate("getComputedStyle(document.querySelector('.outbox-bar')).fill")
    assert fill != "rgb(0, 0, 0)"
