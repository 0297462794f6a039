"""One delivery from the message to the verdict: what every transport does between receive and ack."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from django_outbox.conf import RetryPolicy, outbox_settings
from django_outbox.consumers.bulk import process_batch
from django_outbox.consumers.failures import failure_of, where_raised
from django_outbox.consumers.inbox import inbox_alias, process_once
from django_outbox.consumers.registry import Consumer
from django_outbox.consumers.verdicts import (
    Ack,
    DeadLetter,
    Failed,
    Processed,
    RetryLater,
    Verdict,
    verdict,
)
from django_outbox.messages import Message
from django_outbox.signals import consumer_failed

logger = logging.getLogger("django_outbox.consumers")


def deliver(consumer: Consumer, message: Message) -> Verdict:
    """Process the message and decide what the transport does with it; raises nothing of the handler's.

    The verdict is to be carried out after this returns: by then the effect is committed. What the
    handler raised is logged without its text and sent to ``signals.consumer_failed``.
    """
    error: Exception | None = None
    happened: Processed | Failed
    try:
        happened = process_once(consumer, message)
    except Exception as raised:
        error = raised
        happened = failure_of(raised, inbox_alias(consumer))
    decided = verdict(happened, message.attempt, retry_policy(consumer))
    _tell(consumer, message, decided, error)
    return decided


def deliver_batch(consumer: Consumer, messages: Sequence[Message]) -> list[Verdict]:
    """``deliver`` for a consumer that takes lists: one verdict a message, in their order."""
    errors: dict[int, Exception] = {}
    happened = process_batch(
        consumer, messages, lambda message, error: errors.setdefault(id(message), error)
    )
    policy = retry_policy(consumer)
    decided = []
    for message, what in zip(messages, happened, strict=True):
        decided.append(verdict(what, message.attempt, policy))
        _tell(consumer, message, decided[-1], errors.get(id(message)))
    return decided


def retry_policy(consumer: Consumer) -> RetryPolicy:
    """How often and how soon this consumer's failed deliveries are repeated."""
    policy = outbox_settings().consumers.retry
    if consumer.max_attempts is None:
        return policy
    return replace(policy, max_attempts=consumer.max_attempts)


def _tell(consumer: Consumer, message: Message, decided: Verdict, error: Exception | None) -> None:
    extra = {
        "consumer": consumer.name,
        "message_id": str(message.id),
        "topic": message.topic,
        "attempt": message.attempt,
    }
    match decided:
        case Ack():
            logger.debug(
                "%s: %s %s", consumer.name, decided.processed.name.lower(), message.id, extra=extra
            )
            return
        case RetryLater():
            logger.warning(
                "%s: message %s (%s), attempt %d: %s; again in %.1f s%s",
                consumer.name,
                message.id,
                message.topic,
                message.attempt,
                decided.reason,
                decided.delay.total_seconds(),
                _stack(error),
                extra=extra,
            )
        case DeadLetter():
            logger.error(
                "%s: message %s (%s) is set aside: %s%s",
                consumer.name,
                message.id,
                message.topic,
                decided.reason,
                _stack(error),
                extra=extra,
            )
    if error is not None:
        consumer_failed.send_robust(
            sender=None, consumer=consumer, message=message, error=error, verdict=decided
        )


def _stack(error: Exception | None) -> str:
    return f"\n{where_raised(error)}" if error is not None and error.__traceback__ else ""
