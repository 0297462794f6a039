"""One delivery from the message to the verdict: what every transport does between receive and ack."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django_outbox.conf import outbox_settings
from django_outbox.consumers.bulk import process_batch
from django_outbox.consumers.failures import failure_of
from django_outbox.consumers.inbox import inbox_alias, process_once
from django_outbox.consumers.registry import Consumer
from django_outbox.consumers.verdicts import (
    Ack,
    DeadLetter,
    Failed,
    Failure,
    Processed,
    RetryLater,
    Verdict,
    verdict,
)
from django_outbox.logs import where_raised
from django_outbox.messages import Message
from django_outbox.policies import RetryPolicy
from django_outbox.signals import consumer_failed

logger = logging.getLogger("django_outbox.consumers")


def deliver(consumer: Consumer, message: Message) -> Verdict:
    """Process the message and decide what the transport does with it.

    Raises nothing that the handler raises. The verdict is to be carried out after this returns: by
    then the effect is committed.
    """
    return _decide(consumer, message, attempt(consumer, message))


def deliver_batch(consumer: Consumer, messages: Sequence[Message]) -> list[Verdict]:
    """``deliver`` for a consumer that takes lists: one verdict a message, in their order."""

    def tell(message: Message, error: Exception, failed: Failed) -> None:
        tell_failure(consumer, message, error, failed)

    happened = process_batch(consumer, messages, tell)
    return [
        _decide(consumer, message, what) for message, what in zip(messages, happened, strict=True)
    ]


def attempt(consumer: Consumer, message: Message) -> Processed | Failed:
    """Process the message once and say what happened.

    What the handler raised is logged, without its text, and sent to ``signals.consumer_failed``.
    """
    try:
        return process_once(consumer, message)
    except Exception as error:
        failed = failure_of(error, inbox_alias(consumer))
        tell_failure(consumer, message, error, failed)
        return failed


def retry_policy(consumer: Consumer) -> RetryPolicy:
    """How often and how soon this consumer's failed deliveries are repeated."""
    policy = outbox_settings().consumers.retry
    if consumer.max_attempts is None:
        return policy
    return replace(policy, max_attempts=consumer.max_attempts)


def _decide(consumer: Consumer, message: Message, happened: Processed | Failed) -> Verdict:
    decided = verdict(happened, message.attempt, retry_policy(consumer))
    match decided:
        case Ack():
            if logger.isEnabledFor(logging.DEBUG):  # this is every message
                what = decided.processed.name.lower()
                logger.debug(
                    "%s: %s: %s",
                    consumer.name,
                    message.id,
                    what,
                    extra=_extra("delivery_done", consumer, message),
                )
        case RetryLater():
            seconds = decided.delay.total_seconds()
            logger.info(
                "%s: %s: again in %.1f s",
                consumer.name,
                message.id,
                seconds,
                extra=_extra("delivery_retried", consumer, message),
            )
        case DeadLetter():
            logger.error(
                "%s: %s is set aside: %s",
                consumer.name,
                message.id,
                decided.reason,
                extra=_extra("delivery_set_aside", consumer, message),
            )
    return decided


def tell_failure(consumer: Consumer, message: Message, error: Exception, failed: Failed) -> None:
    """Log what a handler raised, without its text, and send ``signals.consumer_failed``."""
    is_unexpected = failed.failure is Failure.RAISED
    logger.warning(
        "%s: %s (%r), attempt %d: %s%s",
        consumer.name,
        message.id,
        message.topic,
        message.attempt,
        failed.reason,
        f"\n{where_raised(error)}" if is_unexpected else "",
        extra=_extra("consumer_failed", consumer, message),
    )
    consumer_failed.send_robust(
        sender=None, consumer=consumer, message=message, error=error, failed=failed
    )


def _extra(event: str, consumer: Consumer, message: Message) -> dict[str, Any]:
    return {
        "event": event,
        "consumer": consumer.name,
        "message_id": str(message.id),
        "topic": message.topic,
        "attempt": message.attempt,
    }
