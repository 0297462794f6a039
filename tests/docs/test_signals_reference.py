"""The reference of the signals says what the code sends: every signal, and every argument."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal

from django_outbox import enqueue, signals
from django_outbox.consumers.delivery import deliver
from django_outbox.consumers.registry import Consumer
from django_outbox.operations.prune import prune
from django_outbox.publishers.base import Outcome
from django_outbox.relay.loop import Relay
from django_outbox.testing import ScriptedPublisher
from tests.support.messages import received

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/signals.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|^\(|\Z)", PAGE, re.M | re.S))
IN_CODE = {name for name, value in vars(signals).items() if isinstance(value, Signal)}


def sent() -> dict[str, set[str]]:
    """By signal: the arguments that the package sends it with."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "django_outbox").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="send_robust")):
                    given = {keyword.arg or "**" for keyword in node.keywords} - {"sender"}
                    assert found.setdefault(name, given) == given, f"{name}, {path}"
    return found


SENT = sent()


def test_every_signal_is_sent_and_stands_in_the_reference() -> None:
    assert set(SENT) == IN_CODE == set(SECTIONS)


@pytest.mark.parametrize("name", sorted(IN_CODE))
def test_the_arguments_in_the_reference_are_those_that_are_sent(name: str) -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", SECTIONS[name], re.M)) == SENT[name]


def test_the_causes_in_the_reference_are_those_of_the_code() -> None:
    causes = PAGE.split("## Causes")[1]
    listed = set(re.findall(r"^\| `(\w+)` \|", causes, re.M))
    in_code = {"rejected", "failed"}  # outcomes that charge an attempt
    for path in ("brokers/rabbitmq/confirms.py", "relay/verdicts.py"):
        in_code |= set(
            re.findall(r'cause="(\w+)"', (ROOT / "django_outbox" / path).read_text("utf-8"))
        )
    assert listed == in_code


@pytest.fixture
def broken_receivers() -> Any:
    """A receiver of every signal, each of which raises."""
    called: list[str] = []
    receivers = []
    for name in sorted(IN_CODE):

        def receive(name: str = name, **kwargs: Any) -> None:
            called.append(name)
            raise RuntimeError("a receiver of somebody's")

        receivers.append((getattr(signals, name), receive))
        getattr(signals, name).connect(receive, weak=False)
    yield called
    for signal, receive in receivers:
        signal.disconnect(receive)


def test_a_receiver_that_raises_disturbs_nobody(
    database: Any, outbox_settings: Any, broken_receivers: list[str]
) -> None:
    def handle(message: Any) -> None:
        raise ValueError

    def answer(message: Any) -> Outcome:
        return Outcome.CONFIRMED if message.id == row.message_id else Outcome.REJECTED

    with transaction.atomic():
        row = enqueue("invoice.issued", {})
        enqueue("invoice.issued", {})
    outbox_settings(MAX_ATTEMPTS=1)
    totals = Relay(publisher_for=lambda alias: ScriptedPublisher(answer)).drain()
    assert (totals.published, totals.dead) == (1, 1)
    row.refresh_from_db()
    assert row.status == "published"
    deliver(Consumer(name="ledger", handler=handle), received())
    prune()
    assert set(broken_receivers) >= {
        "message_enqueued",
        "message_published",
        "message_dead",
        "consumer_failed",
        "messages_pruned",
    }
