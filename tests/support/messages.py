"""Messages as a transport hands them over."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django_outbox.messages import Message


def received(**changes: Any) -> Message:
    """A message with an identity of its own; every attribute can be given."""
    attributes: dict[str, Any] = {"id": uuid4(), "topic": "invoice.issued", "body": '{"n": 1}'}
    return Message(**{**attributes, **changes})
