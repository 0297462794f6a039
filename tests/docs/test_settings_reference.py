"""The reference of the settings says what the code does: every key, and its real default."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_outbox.conf import outbox_settings, settings_problems

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
ROW = re.compile(r"^\| `([A-Z_]+)` \| [^|]+ \| `([^|]+)` \| [^|]+ \|$", re.MULTILINE)
DEFAULTS = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))
#: Not a literal, or nothing that the settings object keeps.
DERIVED = {"SOURCE", "TOPOLOGY"}


def literal(text: str) -> Any:
    """The value of a default as the page writes it."""
    return eval(text, {"__builtins__": {}, "timedelta": timedelta})


def test_every_key_stands_in_the_reference_and_no_other(settings: Any) -> None:
    settings.OUTBOX = {"no such key": 1}
    [(_, hint)] = settings_problems()
    known = set(hint.removeprefix("Known keys: ").rstrip(".").split(", "))
    assert set(DEFAULTS) == known


@pytest.mark.parametrize("key", sorted(DEFAULTS.keys() - DERIVED))
def test_the_default_in_the_reference_is_the_default(key: str, settings: Any) -> None:
    settings.OUTBOX = {}
    untouched = outbox_settings()
    settings.OUTBOX = {key: literal(DEFAULTS[key])}
    assert outbox_settings() == untouched


def test_the_first_part_of_the_url_configuration_is_the_default_source(settings: Any) -> None:
    settings.OUTBOX = {}
    settings.ROOT_URLCONF = "shop.urls"
    assert outbox_settings().source == "/shop"
