"""Messages and receipts for tests of publishers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt


def make_message(number: int = 0, **attributes: Any) -> Message:
    """A message with an identity of its own; every attribute can be given."""
    given: dict[str, Any] = {
        "id": uuid4(),
        "topic": "invoice.issued",
        "body": json.dumps({"number": number}),
        "source": "/billing",
    }
    return Message(**{**given, **attributes})


def make_messages(count: int, **attributes: Any) -> list[Message]:
    """As many messages."""
    return [make_message(number, **attributes) for number in range(count)]


def outcomes(receipts: Iterable[Receipt]) -> Counter[Outcome]:
    """How often each outcome occurs."""
    return Counter(receipt.outcome for receipt in receipts)


def by_message(receipts: Iterable[Receipt]) -> dict[Any, Receipt]:
    """The receipts by message id; a message with two receipts fails the test."""
    found: dict[Any, Receipt] = {}
    for receipt in receipts:
        assert receipt.message_id not in found, "one message, two receipts"
        found[receipt.message_id] = receipt
    return found
