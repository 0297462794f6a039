"""Receive, dedupe, handle, acknowledge.

The public names are imported on first use (PEP 562): ``consumers.py`` modules need only the
decorator, which touches neither models nor settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_outbox.consumers.inbox import process_once
    from django_outbox.consumers.registry import Consumer, Mode, consumer
    from django_outbox.consumers.verdicts import Processed

_HOMES = {
    "Consumer": "django_outbox.consumers.registry",
    "Mode": "django_outbox.consumers.registry",
    "Processed": "django_outbox.consumers.verdicts",
    "consumer": "django_outbox.consumers.registry",
    "process_once": "django_outbox.consumers.inbox",
}

__all__ = ["Consumer", "Mode", "Processed", "consumer", "process_once"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
