"""Every log record says by a stable word what happened, and the page lists every word."""

from __future__ import annotations

import ast
import json
import logging
import logging.config
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from django_outbox import enqueue
from django_outbox.consumers.delivery import deliver
from django_outbox.consumers.registry import Consumer
from django_outbox.messages import Message
from django_outbox.models import OutboxMessage
from django_outbox.publishers.base import Outcome
from django_outbox.relay.loop import Relay
from django_outbox.relay.shutdown import Stop
from django_outbox.testing import ScriptedPublisher
from tests.support.messages import received
from tests.support.threads import Worker, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/logging.md").read_text(encoding="utf-8")
LEVELS = r"(?:debug|info|warning|error)(?:, (?:info|warning|error))*"
LISTED = dict(re.findall(rf"^\| `(\w+)` \| ({LEVELS}) \|", PAGE, re.M))
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a logger in the package."""
    for path in sorted((ROOT / "django_outbox").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=attr)):
                    if attr in METHODS:
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def event_of(call: ast.Call) -> str | None:
    """The word in ``extra={"event": …}``, or the first text given to a function that makes it."""
    for keyword in call.keywords:
        if keyword.arg != "extra":
            continue
        match keyword.value:
            case ast.Dict(keys=[ast.Constant(value="event"), *_], values=[word, *_]):
                return str(ast.literal_eval(word))
            case ast.Call(args=[ast.Constant(value=str(word)), *_]):
                return word
    return None


CALLS = list(calls())


@pytest.mark.parametrize(("where", "call"), CALLS, ids=[where for where, _ in CALLS])
def test_every_line_says_what_happened_by_a_word(where: str, call: ast.Call) -> None:
    assert event_of(call), where


def test_the_page_lists_every_event_with_its_level() -> None:
    levels: dict[str, set[str]] = {}
    for _, call in CALLS:
        assert isinstance(call.func, ast.Attribute)
        level = call.func.attr.replace("exception", "error")
        levels.setdefault(str(event_of(call)), set()).add(level)
    assert {name: set(found.split(", ")) for name, found in LISTED.items()} == levels


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def log() -> Iterator[Collecting]:
    """The package's records through the formatter of the page."""
    shown: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[0], shown)
    logging.config.DictConfigurator(shown["LOGGING"])  # it is valid; the root is left alone here
    handler = Collecting()
    handler.setFormatter(shown["JsonFormatter"]())
    logger = logging.getLogger("django_outbox")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_the_records_of_a_relay_and_a_consumer_are_json_with_their_event(
    database: Any, outbox_settings: Any, log: Collecting
) -> None:
    outbox_settings(BACKOFF_BASE=0.001, MAX_ATTEMPTS=2, BREAKER_CAP=0.2)
    publisher = ScriptedPublisher(lambda message: Outcome.REJECTED)
    stop = Stop()
    with transaction.atomic():
        enqueue("invoice.issued", {"name": "Ada Lovelace"})
    relay = Worker(Relay(publisher_for=lambda alias: publisher).run, stop)
    wait_until(OutboxMessage.objects.dead().exists, "it is dead")
    publisher.is_down = True
    with transaction.atomic():
        enqueue("invoice.issued", {"name": "Ada Lovelace"})
    wait_until(lambda: "breaker_opened" in events(log), "the breaker opens")
    publisher.script = lambda message: Outcome.CONFIRMED
    publisher.is_down = False
    wait_until(OutboxMessage.objects.published().exists, "it is published")
    stop.set()
    relay.result()

    def handle(message: Message) -> None:
        raise ValueError(message.payload["name"])

    deliver(Consumer(name="ledger", handler=handle), received(body='{"name": "Ada Lovelace"}'))
    assert events(log) >= {
        "relay_started",
        "message_failed",
        "message_dead",
        "breaker_opened",
        "breaker_closed",
        "message_published",
        "relay_stopping",
        "relay_progress",
        "consumer_failed",
        "delivery_retried",
    }
    assert [line for line in log.lines if line.get("event") not in LISTED] == []
    assert "Lovelace" not in str(log.lines)


def events(log: Collecting) -> set[str]:
    return {line.get("event") for line in log.lines}
