"""Message: the immutable thing that travels, the same on both sides of the broker. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

#: What a header may hold. AMQP tables can carry more, other transports cannot.
HeaderValue: TypeAlias = str | int | float | bool | None

JSON_CONTENT_TYPE = "application/json"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One event on its way: read from an outbox row, or received from a broker.

    ``id`` is the idempotency key and stays the same at every attempt. ``body`` is the payload's JSON
    text exactly as stored; members that the event type marks as personal are sealed in it.
    ``repr`` shows no payload and no header value.
    """

    id: UUID
    topic: str
    body: str = field(repr=False)
    headers: Mapping[str, HeaderValue] = field(default_factory=dict, repr=False)
    schema_version: int = 1
    aggregate_type: str = ""
    aggregate_id: str = field(default="", repr=False)
    sequence: int | None = None
    correlation_id: str = field(default="", repr=False)
    causation_id: str = field(default="", repr=False)
    source: str = ""
    created_at: datetime | None = None
    attempt: int = 1
    """Which delivery this is, from 1: the relay's count on the way out, the transport's on the way in."""

    @cached_property
    def payload(self) -> Any:
        """The payload as Python objects. Raises ``ValueError`` where the body is not JSON."""
        return json.loads(self.body)

    def unread(self) -> Message:
        """The same message with a payload that nobody has changed."""
        return replace(self) if "payload" in self.__dict__ else self

    @property
    def is_ordered(self) -> bool:
        """Whether the message belongs to an aggregate, within which order is kept."""
        return self.aggregate_id != ""
