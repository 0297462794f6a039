"""Event types with personal members, and whether this project can seal them at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error

from django_outbox.encryption.conf import DEFAULT, INDEX, encryption_settings
from django_outbox.encryption.conf import settings_problems as encryption_problems
from django_outbox.event_types.registry import all_event_types


def check_personal_members(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The app is installed and the keyrings are there, or ``enqueue`` would raise at the first event."""
    sealed = sorted({each.topic for each in all_event_types() if each.has_personal})
    indexed = sorted({each.topic for each in all_event_types() if each.index_by})
    topics = sorted({*sealed, *indexed})
    if not topics or encryption_problems():
        return []
    if not apps.is_installed("django_outbox.encryption"):
        return [encryption_not_installed(topics)]
    known = encryption_settings().providers
    missing = [(DEFAULT, sealed), (INDEX, indexed)]
    return [no_keyring(ring, which) for ring, which in missing if which and ring not in known]


def encryption_not_installed(topics: Sequence[str]) -> Error:
    return Error(
        f"{_named(topics)} with personal members cannot be sealed: the app django_outbox.encryption is"
        " not installed.",
        hint="Add 'django_outbox.encryption' to INSTALLED_APPS and run migrate.",
        id="django_outbox.E008",
    )


def no_keyring(ring: str, topics: Sequence[str]) -> Error:
    return Error(
        f"{_named(topics)} with personal members need the keyring {ring!r}, which"
        " OUTBOX_ENCRYPTION['KEYRINGS'] does not have.",
        hint="Make a key by manage.py outbox_keys generate. Silence this where the project only"
        " receives these events and is not to read what is sealed.",
        id="django_outbox.E009",
    )


def _named(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - 5} more" if len(topics) > 5 else ""
    return f"Events of {', '.join(map(repr, topics[:5]))}{more}"
