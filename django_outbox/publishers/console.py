"""Print what is published, like Django's e-mail backend of that name: for development."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TextIO

from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt


class ConsolePublisher:
    """Writes each message to standard output and confirms it.

    Shown as stored: sealed members stay sealed, everything else is readable. The option ``STREAM``
    takes another text stream.
    """

    supports_concurrent_publish: ClassVar[bool] = False

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self._stream: TextIO | None = options.get("STREAM")
        self._lock = threading.Lock()

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """One block a message. A stream that cannot be written to is a broker that is down."""
        # Looked up at each call: tests and servers replace sys.stdout.
        stream = self._stream or sys.stdout
        receipts: list[Receipt] = []
        with self._lock:
            for message in messages:
                try:
                    _write(stream, _block(message))
                except (OSError, ValueError) as error:
                    reason = f"the stream cannot be written to: {type(error).__name__}"
                    receipts.append(Receipt(message.id, Outcome.BROKER_DOWN, reason))
                else:
                    receipts.append(Receipt(message.id, Outcome.CONFIRMED))
        return receipts

    def probe(self) -> str:
        """Empty unless the stream has been closed."""
        return "the stream is closed" if (self._stream or sys.stdout).closed else ""

    def close(self) -> None:
        """The stream belongs to whoever opened it."""

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """``STREAM`` is the only option, and must be writable."""
        where = f"OUTBOX['PUBLISHERS'][{alias!r}]"
        problems = [
            (f"{where}[{option!r}] is no option of ConsolePublisher.", "It has 'STREAM' only.")
            for option in options
            if option != "STREAM"
        ]
        stream = options.get("STREAM")
        if stream is not None and not hasattr(stream, "write"):
            problems.append(
                (
                    f"{where}['STREAM'] cannot be written to.",
                    "Pass an open text stream, or leave it out.",
                )
            )
        return problems


def _write(stream: TextIO, block: str) -> None:
    try:
        stream.write(block)
    except UnicodeEncodeError:
        # A terminal without UTF-8 is no outage: show what it can show.
        stream.write(block.encode("ascii", "backslashreplace").decode("ascii"))
    stream.flush()


def _block(message: Message) -> str:
    aggregate = (
        f"{message.aggregate_type} {message.aggregate_id}" if message.is_ordered else "(no order)"
    )
    lines = [
        f"{message.topic} {message.id}",
        f"  aggregate: {aggregate}",
        f"  size:      {len(message.body.encode()):,} bytes, attempt {message.attempt}",
        f"  payload:   {message.body}",
        "",
    ]
    return "\n".join(lines) + "\n"
