"""For the tests of projects that use the outbox: look at what was enqueued, and let it run.

The same object for both styles: the fixture ``outbox`` of the pytest plugin, and ``self.outbox`` of a
``TestCase`` with ``OutboxTestMixin``. It reads the table itself, so it works inside ``TestCase``'s
transaction and sees what a rollback takes back.
"""

from __future__ import annotations

import json
import pprint
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django_outbox.conf import OutboxSettings, outbox_settings
from django_outbox.databases import database_for, outbox_alias
from django_outbox.databases.clock import DatabaseNow
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet
from django_outbox.payloads import json_text
from django_outbox.publishers import locmem
from django_outbox.publishers.base import Outcome, Publisher, Receipt
from django_outbox.publishers.local import LocalPublisher
from django_outbox.relay.loop import Relay
from django_outbox.signals import consumer_failed

#: How much of what was enqueued a failing assertion shows.
_MESSAGES_SHOWN = 20
_PAYLOAD_SHOWN = 1_000

#: What no consumer here takes goes to other services, which a test does not have.
_LOCAL = {"WITHOUT_CONSUMER": "confirm"}
_ANYTHING: Any = object()
#: The ceiling below which pauses before a retry are chosen by chance.
_NEVER_IN_A_TEST = timedelta(days=365)


class Outbox:
    """The outbox as a test sees it."""

    @property
    def messages(self) -> list[OutboxMessage]:
        """Every message in the table, whatever its status, in the order of enqueueing."""
        return list(self._rows().order_by("id"))

    def assert_enqueued(
        self, topic: str, payload: Any = _ANYTHING, *, count: int | None = None
    ) -> OutboxMessage:
        """At least one message of this topic was enqueued, or exactly ``count``; returns the last.

        A ``payload`` may name only the members that matter: objects match when each member named
        is there and matches, everything else must be equal. Dates, Decimals and UUIDs are compared
        as they are written. For equality compare the ``payload`` of the message that is returned.

        Raises ``AssertionError``, which shows what was enqueued with its payloads as stored.
        """
        __tracebackhide__ = True
        wanted = payload if payload is _ANYTHING else json.loads(json_text(topic, payload))
        enqueued = self.messages
        found = [
            message
            for message in enqueued
            if message.topic == topic and (wanted is _ANYTHING or _matches(wanted, message.payload))
        ]
        if not found or (count is not None and len(found) != count):
            raise AssertionError(_not_enqueued(topic, wanted, count, len(found), enqueued))
        return found[-1]

    def assert_nothing_enqueued(self, topic: str | None = None) -> None:
        """No message is in the table, or none of this topic."""
        __tracebackhide__ = True
        found = [m for m in self.messages if topic is None or m.topic == topic]
        if found:
            what = "Nothing" if topic is None else f"No {topic!r}"
            raise AssertionError(f"{what} should have been enqueued.\n{_listed(found)}")

    def drain(
        self, publisher: Publisher | None = None, *, allow_failures: bool = False
    ) -> list[Message]:
        """Publish what is due, and what that causes, until nothing is due; returns what was published.

        Without ``publisher`` this process's own consumers are called, whatever ``OUTBOX`` says: a
        test reaches no broker by accident. Each message is tried once. Raises ``AssertionError``
        where one was not confirmed, unless ``allow_failures``; it is then pending with a later due
        time, or dead, and ``make_due`` lets the next ``drain`` try it again.
        """
        __tracebackhide__ = True
        recorder = _Recorder(LocalPublisher("local", _LOCAL) if publisher is None else publisher)
        with _raised_by_consumers() as errors:
            Relay(
                database_for(outbox_alias()),
                settings=_without_early_retries(outbox_settings()),
                publisher_for=lambda alias: recorder,
            ).drain()
        if recorder.failures and not allow_failures:
            text = "Messages were not published:\n" + "\n".join(recorder.failures)
            raise AssertionError(text) from (errors[0] if errors else None)
        return recorder.published

    def make_due(self) -> int:
        """Make scheduled and retried messages due now; returns how many there were."""
        return (
            self._rows()
            .pending()
            .filter(available_at__gt=DatabaseNow())
            .update(available_at=DatabaseNow())
        )

    def clear(self) -> None:
        """Forget what was enqueued and published so far: the table and ``locmem.outbox``."""
        self._rows().delete()
        locmem.outbox.clear()

    def _rows(self) -> OutboxMessageQuerySet:
        return OutboxMessage.objects.using(outbox_alias())


class OutboxTestMixin:
    """``class InvoiceTests(OutboxTestMixin, TestCase)``: gives the tests ``self.outbox``."""

    outbox: ClassVar[Outbox] = Outbox()

    def setUp(self) -> None:
        """Start with an empty ``locmem.outbox``."""
        super().setUp()  # type: ignore[misc]
        locmem.outbox.clear()


class ScriptedPublisher:
    """Answers as a test tells it to, and keeps what it was given.

    ``script`` decides about each message by returning an ``Outcome``. Without one, everything is
    confirmed.
    """

    supports_concurrent_publish: ClassVar[bool] = False

    def __init__(self, script: Callable[[Message], Outcome] | None = None) -> None:
        self.script = script or (lambda message: Outcome.CONFIRMED)
        self.received: list[Message] = []
        self.is_down = False

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        """One receipt a message, by the script; while ``is_down``, nothing is received."""
        if self.is_down:
            return [Receipt(m.id, Outcome.BROKER_DOWN, "scripted") for m in messages]
        self.received.extend(messages)
        receipts = []
        for message in messages:
            outcome = self.script(message)
            reason = "" if outcome is Outcome.CONFIRMED else "scripted"
            receipts.append(Receipt(message.id, outcome, reason))
        return receipts

    def probe(self) -> str:
        """Whether the test has taken the broker down."""
        return "scripted" if self.is_down else ""

    def close(self) -> None:
        """Nothing to let go of."""

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """It is made by a test, not by settings."""
        return []


def _without_early_retries(settings: OutboxSettings) -> OutboxSettings:
    """The settings with pauses before a retry so long that none, chance as they are, ends in a test."""
    retry = settings.retry
    return replace(settings, retry=replace(retry, base=_NEVER_IN_A_TEST, cap=_NEVER_IN_A_TEST))


@contextmanager
def _raised_by_consumers() -> Iterator[list[Exception]]:
    """What handlers raise while the block lasts, so that a test shows where."""
    errors: list[Exception] = []

    def remember(error: Exception, **kwargs: Any) -> None:
        errors.append(error)

    consumer_failed.connect(remember, weak=False)
    try:
        yield errors
    finally:
        consumer_failed.disconnect(remember)


class _Recorder:
    """Passes messages on to a publisher and remembers what became of them."""

    supports_concurrent_publish: ClassVar[bool] = False

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.published: list[Message] = []
        self.failures: list[str] = []

    def probe(self) -> str:
        return self._publisher.probe()

    def close(self) -> None:
        self._publisher.close()

    @classmethod
    def check(cls, alias: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def publish(self, messages: Sequence[Message]) -> list[Receipt]:
        receipts = self._publisher.publish(messages)
        by_id: dict[UUID, Message] = {message.id: message for message in messages}
        for receipt in receipts:
            message = by_id[receipt.message_id]
            if receipt.outcome is Outcome.CONFIRMED:
                self.published.append(message)
            elif receipt.outcome is not Outcome.NOT_SENT:
                reason = f": {receipt.reason}" if receipt.reason else ""
                self.failures.append(
                    f"  {message.topic} {message.id} {receipt.outcome.name.lower()}{reason}"
                )
        return receipts


def _matches(wanted: Any, found: Any) -> bool:
    """Whether each member that is wanted is there. Lists and plain values must be equal in full."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name in found and _matches(value, found[name]) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_matches(w, f) for w, f in zip(wanted, found, strict=True))
        )
    # True == 1 in Python, but not in JSON.
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)


def _not_enqueued(
    topic: str, wanted: Any, count: int | None, found: int, enqueued: list[OutboxMessage]
) -> str:
    times = "" if count is None else f" {count} time{'' if count == 1 else 's'}, but {found} were"
    lines = [f"{topic!r} should have been enqueued{times}."]
    if wanted is not _ANYTHING:
        lines.append(f"With a payload that has:\n{_indented(wanted)}")
    lines.append(f"Enqueued was:\n{_listed(enqueued)}" if enqueued else "Nothing was enqueued.")
    return "\n".join(lines)


def _listed(messages: list[OutboxMessage]) -> str:
    shown = [f"- {m.topic} {m.message_id}\n{_indented(m.payload)}" for m in messages]
    more = len(messages) - _MESSAGES_SHOWN
    return "\n".join(shown[:_MESSAGES_SHOWN] + ([f"… and {more} more"] if more > 0 else []))


def _indented(payload: Any) -> str:
    text = pprint.pformat(payload, width=80, sort_dicts=False)
    if len(text) > _PAYLOAD_SHOWN:
        text = f"{text[:_PAYLOAD_SHOWN]}…"
    return "\n".join(f"    {line}" for line in text.splitlines())
