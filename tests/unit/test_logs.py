from __future__ import annotations

import logging
import logging.config

from django_outbox.context import context
from django_outbox.logs import ContextFilter, messages_in_words


def record(**extra: str) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": "something happened", **extra})
    assert ContextFilter().filter(made) is True
    return made


def test_a_line_logged_while_handling_names_the_message():
    with context(correlation_id="order-4711", causation_id="m1", consumer="ledger"):
        made = record()
    assert (made.correlation_id, made.causation_id, made.consumer) == (
        "order-4711",
        "m1",
        "ledger",
    )


def test_a_line_logged_elsewhere_has_empty_strings():
    made = record()
    assert (made.correlation_id, made.causation_id, made.consumer) == ("", "", "")


def test_what_the_caller_says_itself_is_left_alone():
    with context(correlation_id="order-4711"):
        assert record(correlation_id="mine").correlation_id == "mine"


def test_it_works_from_a_logging_configuration():
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"message": {"()": "django_outbox.logs.ContextFilter"}},
            "handlers": {"null": {"class": "logging.NullHandler", "filters": ["message"]}},
        }
    )


def test_one_message_is_not_messages():
    counts = [messages_in_words(count) for count in (0, 1, 2, 41200)]
    assert counts == ["0 messages", "1 message", "2 messages", "41,200 messages"]
