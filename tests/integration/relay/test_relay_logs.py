"""What outbox_relay lets be heard of the broker's client library."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from django_outbox import enqueue
from django_outbox.management.console_log import console_log
from tests.support.relay_children import rabbitmq_outbox

PIKA = logging.getLogger("pika")


@pytest.fixture
def nobody_listens(database: Any, settings: Any) -> Iterator[None]:
    settings.OUTBOX = rabbitmq_outbox("amqp://127.0.0.1:1/%2F", "domain.events")
    with transaction.atomic():
        enqueue("invoice.issued", {})
    yield
    PIKA.setLevel(logging.NOTSET)


def heard(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith(name)]


def relay_once() -> None:
    with pytest.raises(CommandError, match="Not everything"):
        call_command("outbox_relay", "--once")


def test_an_outage_is_one_line_of_ours_and_none_of_the_clients(
    nobody_listens: None, caplog: pytest.LogCaptureFixture
) -> None:
    relay_once()
    assert heard(caplog, "pika") == []
    (line,) = heard(caplog, "django_outbox.relay")
    assert "The broker of 'default' is down" in line
    assert PIKA.level == logging.NOTSET


def test_a_project_that_gives_the_clients_logger_a_level_hears_it(
    nobody_listens: None, caplog: pytest.LogCaptureFixture
) -> None:
    PIKA.setLevel(logging.ERROR)
    relay_once()
    assert heard(caplog, "pika") != []
    assert PIKA.level == logging.ERROR


def test_lines_go_to_the_console_only_where_the_project_logs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stream:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

    stream = Stream()
    logger = logging.getLogger("django_outbox")
    with console_log(stream, 1):
        logger.info("The project has a handler.")
    assert stream.text == ""
    monkeypatch.setattr(logger, "propagate", False)
    with console_log(stream, 1):
        logger.debug("Not asked for.")
        logger.info("Nobody else logs this.")
    assert "INFO Nobody else logs this." in stream.text
    assert "Not asked" not in stream.text
    assert not logger.handlers
