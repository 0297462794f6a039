"""What README.md and the pages show works: its Python, its links, and every command of ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from django_outbox.conf import settings_problems
from django_outbox.consumers.registry import isolated_registry
from django_outbox.databases import Database
from django_outbox.testing import Outbox
from tests.testapp.models import Invoice, LedgerEntry

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown_commands() -> Iterator[tuple[str, str]]:
    """Every `manage.py outbox_…` in the pages, with the page it stands on.

    The example project's own command, outbox_demo, is run by the acceptance tests.
    """
    for page in PAGES:
        for found in re.findall(r"manage\.py (outbox_\w+[^`\n|&#)]*)", page.read_text("utf-8")):
            if not found.startswith("outbox_demo"):
                yield page.relative_to(ROOT).as_posix(), found.strip().rstrip(".,;")


COMMANDS = sorted(set(shown_commands()))


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_shown_exists_and_takes_the_options_shown(page: str, line: str) -> None:
    name, *arguments = shlex.split(line.replace("…", ""))
    command = load_command_class(get_commands()[name], name)
    # Placeholders are words in capitals; options that take a choice or a number are given for real.
    command.create_parser("manage.py", name).parse_args(arguments)


def test_the_files_that_the_readme_links_to_exist() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_settings_in_the_readme_are_valid(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_BROKER_URL", "amqp://guest:guest@localhost/%2F")
    shown: dict[str, Any] = {}
    exec(PYTHON[0], shown)
    settings.OUTBOX = shown["OUTBOX"]
    assert shown["INSTALLED_APPS"] == ["django_outbox"]
    assert settings_problems() == []


def test_the_code_in_the_readme_works(database: Database) -> None:
    invoice = Invoice.objects.create(number="A-1", version=0)
    invoice.total = Decimal(120)  # type: ignore[attr-defined]
    shown: dict[str, Any] = {"Entry": LedgerEntry}
    with isolated_registry():
        exec(PYTHON[1], shown)
        exec(PYTHON[2], shown)
        shown["issue_invoice"](invoice)
        Outbox().assert_enqueued("invoice.issued", {"invoice_id": invoice.pk, "total": "120"})
        Outbox().drain()
    assert LedgerEntry.objects.get().amount == 120
