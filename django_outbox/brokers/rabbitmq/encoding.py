"""Properties of any kind, encoded by pika before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pika

from django_outbox.brokers.rabbitmq.rounds import EncodedProperties
from django_outbox.exceptions import UnsendableMessage


def encoded(headers: Mapping[str, Any], **properties: Any) -> EncodedProperties:
    """The properties ready for the wire. Raises ``UnsendableMessage`` where AMQP cannot hold them."""
    try:
        pieces = pika.BasicProperties(headers=dict(headers), **properties).encode()
    except Exception as error:  # pika raises what its encoder happens to raise
        problem = f"cannot be encoded for AMQP: {type(error).__name__}"
        raise UnsendableMessage("a header or property", problem) from None
    return EncodedProperties(b"".join(pieces))
