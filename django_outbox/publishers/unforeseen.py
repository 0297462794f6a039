"""Receipts after an error that nobody foresaw: what was sent is unknown, so all of it is sent again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django_outbox.logs import where_raised
from django_outbox.messages import Message
from django_outbox.receipts import Outcome, Receipt

logger = logging.getLogger(__name__)


def unforeseen(alias: str, error: Exception, messages: Sequence[Message]) -> list[Receipt]:
    """An outage for each of the messages.

    Logged is where it was raised, without the error's text, which may hold a message's values.
    """
    reason = f"the publisher raised {type(error).__name__}"
    logger.error(
        "%r: %s.\n%s",
        alias,
        reason,
        where_raised(error),
        extra={"event": "unforeseen", "publisher": alias, "reason": reason},
    )
    return [Receipt(message.id, Outcome.BROKER_DOWN, reason) for message in messages]
