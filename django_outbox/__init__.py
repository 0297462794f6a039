"""Transactional outbox, idempotent inbox and sealed personal data for Django.

The public names are imported on first use (PEP 562), so that Django can load this package as an app
before its models are ready.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_outbox.context import current_context
    from django_outbox.messages import Message
    from django_outbox.producer import Event, enqueue, enqueue_many

__version__ = "0.1.0"

_HOMES = {
    "Event": "django_outbox.producer",
    "Message": "django_outbox.messages",
    "current_context": "django_outbox.context",
    "enqueue": "django_outbox.producer",
    "enqueue_many": "django_outbox.producer",
}

__all__ = ["Event", "Message", "current_context", "enqueue", "enqueue_many"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
