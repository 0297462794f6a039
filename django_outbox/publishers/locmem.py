"""Keep what is published in a list, like Django's e-mail backend of that name: for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt

#: Everything that this process has published through ``LocMemPublisher``, oldest first. The ``outbox``
#: fixture and ``OutboxTestMixin`` empty it before each test; ``outbox.clear()`` does it by hand.
outbox: list[Message] = []


class LocMemPublisher:
    """Confirms every message and keeps it in ``locmem.outbox``. Has no options."""

    supports_concurrent_publish: ClassVar[bool] = False

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """Keep the messages in the order given."""
        outbox.extend(messages)
        return [Receipt(message.id, Outcome.CONFIRMED) for message in messages]

    def probe(self) -> str:
        """Always takes messages."""
        return ""

    def close(self) -> None:
        """Nothing to let go of; what was published stays in the list."""

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """There are no options to get wrong."""
        where = f"OUTBOX['PUBLISHERS'][{alias!r}]"
        return [
            (f"{where}[{option!r}] is no option of LocMemPublisher.", "It has none: remove it.")
            for option in options
        ]
