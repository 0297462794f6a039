"""The page about the admin names the states, the permissions and the numbers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from django.contrib import admin

from django_outbox.admin import OutboxMessageAdmin, acting, dashboard, paging, window
from django_outbox.admin.states import State
from django_outbox.encryption.models import KeyFingerprint
from django_outbox.models import OutboxMessage
from django_outbox.operations.selection import CHUNK

PAGE = (Path(__file__).parents[2] / "docs/howto/admin.md").read_text("utf-8")


def test_every_state_has_its_row() -> None:
    table = PAGE.partition("| state |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE) == [s.label for s in State]


def test_every_permission_has_its_row_and_no_other_is_shown() -> None:
    ours = [
        model
        for model in admin.site._registry
        if model._meta.app_label in {"django_outbox", "django_outbox_encryption"}
    ]
    assert {OutboxMessage, KeyFingerprint} < set(ours)
    own = {f"django_outbox.{name}" for name, _ in OutboxMessage._meta.permissions}
    views = {f"{model._meta.app_label}.view_{model._meta.model_name}" for model in ours}
    assert set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE)) == own | views


def test_the_numbers_are_the_real_ones() -> None:
    assert f"{window.WINDOW:,}" == "100,000"
    assert f"up to {paging.COUNTED:,}" in PAGE
    assert acting.WINDOW == window.WINDOW
    assert (CHUNK, "a thousand messages each" in PAGE) == (1_000, True)
    assert (dashboard.SECONDS, "every five seconds" in PAGE) == (5, True)


def test_the_class_that_is_shown_can_be_overridden() -> None:
    assert issubclass(OutboxMessageAdmin, admin.ModelAdmin)
