"""Receive, dedupe, handle, acknowledge.

The public names are imported on first use (PEP 562): ``consumers.py`` modules need only the
decorator, which touches neither models nor settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_outbox.consumers.external import NOT_MADE, Found, once_outside, same_key_again
    from django_outbox.consumers.http import idempotent_request
    from django_outbox.consumers.inbox import handling, process_once
    from django_outbox.consumers.registry import Consumer, Mode, consumer
    from django_outbox.consumers.verdicts import Processed

_HOMES = {
    "Consumer": "django_outbox.consumers.registry",
    "Found": "django_outbox.consumers.external",
    "Mode": "django_outbox.consumers.registry",
    "NOT_MADE": "django_outbox.consumers.external",
    "Processed": "django_outbox.consumers.verdicts",
    "consumer": "django_outbox.consumers.registry",
    "handling": "django_outbox.consumers.inbox",
    "idempotent_request": "django_outbox.consumers.http",
    "once_outside": "django_outbox.consumers.external",
    "process_once": "django_outbox.consumers.inbox",
    "same_key_again": "django_outbox.consumers.external",
}

__all__ = [
    "NOT_MADE",
    "Consumer",
    "Found",
    "Mode",
    "Processed",
    "consumer",
    "handling",
    "idempotent_request",
    "once_outside",
    "process_once",
    "same_key_again",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
