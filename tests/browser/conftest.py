"""A real browser at a real server, under a strict Content-Security-Policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from django_outbox.admin import dashboard
from tests.integration.admin.conftest import person, person_registered
from tests.support import services

__all__ = ["person", "person_registered"]

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LIST = "/admin/django_outbox/outboxmessage/"
POLICY = "default-src 'self'"


def strict_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Any:
    """Middleware: nothing from elsewhere, nothing inline."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return middleware


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For one module: as long as it lives no other test of this process can run asynchronous code."""
    path = services.chromium()
    # Playwright's loop runs in this thread, where tests use the ORM: one after the other, never both.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def server(database: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """The admin, served to a browser; its dashboard refreshes itself more often than usual."""
    monkeypatch.setattr(dashboard, "SECONDS", 0.2)
    settings.MIDDLEWARE = [f"{__name__}.strict_policy", *settings.MIDDLEWARE]
    running = LiveServer("localhost")
    yield running
    running.stop()


@dataclass
class Somebody:
    """A person at a browser."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    """What the browser has said on its console."""

    def visit(self, path: str = LIST) -> Page:
        """Go there, and wait for what the page fetches by itself."""
        self.page.goto(urljoin(self.address, path))
        if self.page.locator("[data-outbox-empty]").count():
            self.page.locator("[data-outbox-figures] .outbox-tiles").wait_for()
        return self.page

    def fits(self) -> bool:
        """Whether nothing has to be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.fixture
def sit_down(chromium: Browser, server: LiveServer) -> Iterator[Any]:
    """Log somebody in who has these permissions on messages: ``sit_down("view", "requeue")``."""
    contexts: list[BrowserContext] = []

    def somebody(*permissions: str, **options: Any) -> Somebody:
        user = User.objects.create_user(f"user{len(contexts)}", is_staff=True)
        names = [f"{name}_outboxmessage" for name in permissions]
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client = Client()
        client.force_login(user)
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        cookie = client.cookies[django_settings.SESSION_COOKIE_NAME]
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": server.url}])
        at_work = Somebody(context.new_page(), server.url)
        at_work.page.set_default_timeout(20_000)

        def hear(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"} and "favicon" not in message.location["url"]:
                at_work.complaints.append(message.text)

        at_work.page.on("console", hear)
        at_work.page.on("pageerror", lambda error: at_work.complaints.append(str(error)))
        return at_work

    yield somebody
    for context in contexts:
        context.close()
