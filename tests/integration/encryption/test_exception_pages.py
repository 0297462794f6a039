"""No exception page shows a key: Django prints the variables of every frame."""

from __future__ import annotations

import base64
import os
import sys
from html import escape
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.views.debug import ExceptionReporter

from django_outbox.encryption.conf import keyring
from django_outbox.encryption.keyrings import Keyring, parse_keyring

KEY = os.urandom(32)
SHORT = b"not long enough \xff"
#: How a key can look on a page.
SPELLINGS = [spell for raw in (KEY, SHORT) for spell in (base64.b64encode(raw).decode(), repr(raw))]
GOOD, BAD = SPELLINGS[0], SPELLINGS[2]


class Vault:
    local = False

    def load(self, name: str) -> Keyring:
        answer = f"a:primary:{GOOD}"
        raise RuntimeError("no connection", len(answer))


RINGS: dict[str, Any] = {
    "length": f"a:primary:{GOOD} b:retired:{BAD}",
    "base64": f"a:primary:{GOOD} b:retired:{GOOD}!",
    "form": f"a:primary:{GOOD} {GOOD}",
    "same key": f"a:primary:{GOOD} b:retired:{GOOD}",
    "state": f"a:first:{GOOD}",
    "no primary": f"a:retired:{GOOD}",
    "the wrong way round": f"{GOOD}:primary:a",
    "destroyed": f"a:primary:{GOOD} b:destroyed:{GOOD}",
    "by state": {"primary": {"a": GOOD}, "retired": {"b": BAD}},
    "provider": {"BACKEND": f"{__name__}.Vault"},
}


def page(work: Any) -> str:
    try:
        work()
    except Exception:
        reporter = ExceptionReporter(None, *sys.exc_info())
        return reporter.get_traceback_html() + reporter.get_traceback_text()
    raise AssertionError("it raised nothing")


def keys_in(text: str) -> list[str]:
    return [spelling for spelling in SPELLINGS if spelling in text or escape(spelling) in text]


@pytest.mark.parametrize("wrong", RINGS)
def test_the_page_of_a_wrong_keyring_shows_no_key(wrong: str, settings: Any, tmp_path: Path):
    ring = RINGS[wrong]
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": {"default": ring}}
    assert keys_in(page(keyring)) == []
    if isinstance(ring, str):
        # As a provider of somebody else's calls it, too.
        assert keys_in(page(lambda: parse_keyring(RINGS[wrong]))) == []
        file = tmp_path / "keys"
        file.write_text(ring.replace(" ", "\n"))
        provider = "django_outbox.encryption.providers.FileKeys"
        settings.OUTBOX_ENCRYPTION = {
            "KEYRINGS": {"default": {"BACKEND": provider, "PATH": file}},
        }
        assert keys_in(page(keyring)) == []


def test_the_page_of_a_key_made_of_secret_key_shows_neither(settings: Any):
    settings.SECRET_KEY = "0123456789abcdefghijklmnopqrstuv"
    ring = f"a:primary:{base64.b64encode(settings.SECRET_KEY.encode()).decode()}"
    settings.OUTBOX_ENCRYPTION = {"KEYRINGS": {"default": ring}}
    text = page(keyring)
    assert "SECRET_KEY" in text
    assert django_settings.SECRET_KEY not in text
