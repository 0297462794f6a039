"""Signals: what happened to a message, a lease or a broker, for code that wants to know.

Sent with ``send_robust``: a receiver that raises is logged and disturbs nobody. Inside the producer's
transaction only ``message_enqueued`` is sent; the relay sends its own after it has settled, and each
of them is also a log line: one for each state change and reason, never one for each row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from django.dispatch import Signal

from django_outbox.batches import Claimed, Dead, Retry
from django_outbox.logs import messages_in_words
from django_outbox.messages import Message

logger = logging.getLogger("django_outbox.relay")

#: Sent in the caller's transaction, after the rows are written. Arguments: ``messages`` (list of
#: OutboxMessage). ``sender`` is OutboxMessage.
message_enqueued = Signal()
#: After a settle. Arguments: ``messages`` (list of Message).
message_published = Signal()
#: After a settle. Arguments: ``message`` (Message), ``attempts``, ``reason``, ``cause`` (one of a few
#: words), ``delay`` (timedelta until the next try).
message_failed = Signal()
#: After a settle. Arguments: ``message`` (Message), ``attempts``, ``reason``, ``cause``.
message_dead = Signal()
#: After a settle that found its lease gone. Arguments: ``count``, ``message_ids`` (list of UUID).
lease_lost = Signal()
#: Arguments: ``publisher`` (alias), ``reason``.
breaker_opened = Signal()
#: Arguments: ``publisher`` (alias), ``open_for`` (timedelta).
breaker_closed = Signal()
#: After a delivery that was not processed. Arguments: ``consumer`` (Consumer), ``message`` (Message),
#: ``error`` (what the handler raised; its text may hold values), ``failed`` (Failed).
consumer_failed = Signal()
#: After a pruning. Arguments: ``deleted`` (dict: number of rows by kind, ``published`` for example).
messages_pruned = Signal()

#: How many message ids a log line names.
_NAMED = 5


def tell_published(messages: Sequence[Message]) -> None:
    """These messages are published."""
    logger.debug(
        "Published %s.",
        messages_in_words(len(messages)),
        extra={"event": "message_published", "count": len(messages)},
    )
    if message_published.has_listeners():
        message_published.send_robust(sender=None, messages=list(messages))


def tell_failed(failed: Sequence[tuple[Claimed, Retry]]) -> None:
    """These attempts failed; the messages are due again later."""
    for reason, group in _by_reason(failed):
        messages = [claimed.message for claimed, _ in group]
        logger.warning(
            "Publishing failed, %s will be tried again: %s (%s)",
            messages_in_words(len(messages)),
            reason,
            _named(messages),
            extra={"event": "message_failed", "count": len(messages), "reason": reason},
        )
    if message_failed.has_listeners():
        for claimed, verdict in failed:
            message_failed.send_robust(
                sender=None,
                message=claimed.message,
                attempts=claimed.attempts,
                reason=verdict.reason,
                cause=verdict.cause,
                delay=verdict.delay,
            )


def tell_dead(dead: Sequence[tuple[Claimed, Dead]]) -> None:
    """These messages are given up until somebody acts."""
    for reason, group in _by_reason(dead):
        messages = [claimed.message for claimed, _ in group]
        logger.error(
            "Gave up on %s: %s (%s). Requeue or discard what is dead.",
            messages_in_words(len(messages)),
            reason,
            _named(messages),
            extra={"event": "message_dead", "count": len(messages), "reason": reason},
        )
    if message_dead.has_listeners():
        for claimed, verdict in dead:
            message_dead.send_robust(
                sender=None,
                message=claimed.message,
                attempts=claimed.attempts,
                reason=verdict.reason,
                cause=verdict.cause,
            )


def tell_lease_lost(messages: Sequence[Message]) -> None:
    """These rows had another lease when their verdict came: another relay publishes them as well."""
    logger.warning(
        "Lost the lease of %s before the outcome was settled (%s): LEASE is too short for what"
        " publishing takes here, or this process stood still. Expect a second delivery.",
        messages_in_words(len(messages)),
        _named(messages),
        extra={"event": "lease_lost", "count": len(messages)},
    )
    lease_lost.send_robust(
        sender=None, count=len(messages), message_ids=[message.id for message in messages]
    )


def tell_breaker_opened(publisher: str, reason: str) -> None:
    """This publisher's broker takes no messages."""
    logger.error(
        "The broker of %r is down: %s. Its messages wait; no attempt is charged.",
        publisher,
        reason,
        extra={"event": "breaker_opened", "publisher": publisher, "reason": reason},
    )
    breaker_opened.send_robust(sender=None, publisher=publisher, reason=reason)


def tell_breaker_closed(publisher: str, open_for: timedelta) -> None:
    """This publisher's broker takes messages again."""
    seconds = open_for.total_seconds()
    logger.warning(
        "The broker of %r is back after %.1f s.",
        publisher,
        seconds,
        extra={"event": "breaker_closed", "publisher": publisher, "open_for": seconds},
    )
    breaker_closed.send_robust(sender=None, publisher=publisher, open_for=open_for)


def tell_pruned(deleted: Mapping[str, int]) -> None:
    """So many rows of each kind were older than their retention and are gone."""
    total = sum(deleted.values())
    if total:
        kinds = ", ".join(f"{name} {count:,}" for name, count in deleted.items() if count)
        logger.info(
            "Pruned: %s.",
            kinds,
            extra={"event": "messages_pruned", "count": total, "deleted": dict(deleted)},
        )
    messages_pruned.send_robust(sender=None, deleted=dict(deleted))


Failed = TypeVar("Failed", Retry, Dead)


def _by_reason(
    verdicts: Sequence[tuple[Claimed, Failed]],
) -> Iterator[tuple[str, list[tuple[Claimed, Failed]]]]:
    grouped: dict[str, list[tuple[Claimed, Failed]]] = {}
    for claimed, verdict in verdicts:
        grouped.setdefault(verdict.reason, []).append((claimed, verdict))
    yield from grouped.items()


def _named(messages: Sequence[Message]) -> str:
    named = ", ".join(f"{message.topic} {message.id}" for message in messages[:_NAMED])
    return named if len(messages) <= _NAMED else f"{named} and {len(messages) - _NAMED} more"
