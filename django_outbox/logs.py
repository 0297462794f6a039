"""What log lines have in common: which message they belong to, and how they count messages."""

from __future__ import annotations

import logging
import traceback

from django_outbox.context import current_context


class ContextFilter(logging.Filter):
    """Gives every record ``correlation_id``, ``causation_id`` and ``consumer``; lets all of them pass.

    Empty strings outside of any handling. What a record brings along in ``extra`` is left as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Fill the three attributes in."""
        context = current_context()
        for name in ("correlation_id", "causation_id", "consumer"):
            if not hasattr(record, name):
                setattr(record, name, getattr(context, name))
        return True


def messages_in_words(count: int) -> str:
    """``1 message``, ``41,200 messages``: for lines that people read."""
    return "1 message" if count == 1 else f"{count:,} messages"


def class_name(error: BaseException) -> str:
    """The exception's class, with its module where that tells anything. No text: it may hold values."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def where_raised(error: BaseException) -> str:
    """The traceback without the exception's text, which may hold values."""
    return "".join(traceback.format_tb(error.__traceback__)).rstrip()
