"""What the consumers of transport tests do: book an amount, and then whatever the message asks for."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import F

from django_outbox import enqueue
from django_outbox.exceptions import PostponeMessage, RejectMessage
from django_outbox.messages import Message
from tests.testapp.models import Balance, LedgerEntry

PATIENCE = 60


def act(message: Message) -> None:
    """Handle one message as its payload says.

    ``amount`` is booked; ``do`` and ``until`` say what happens besides, as long as the attempt is
    below ``until``. The diary says "handled" when it is committed.
    """
    order: dict[str, Any] = message.payload
    note("handling", message)
    book(message, order.get("amount", 1))
    if message.attempt < order.get("until", 1_000_000):
        misbehave(order.get("do", ""), order, message)
    transaction.on_commit(lambda: note("handled", message))


def book(message: Message, amount: int) -> None:
    LedgerEntry.objects.create(account="sales", reference=str(message.id), amount=amount)
    Balance.objects.filter(account="sales").update(amount=F("amount") + amount)


def misbehave(do: str, order: dict[str, Any], message: Message) -> None:
    match do:
        case "raise":
            raise ValueError(order.get("name"))
        case "reject":
            raise RejectMessage("its account is closed")
        case "postpone":
            raise PostponeMessage(timedelta(seconds=0.1), "too early")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die after commit":
            transaction.on_commit(lambda: die_after_commit(message))
        case "enqueue":
            enqueue("receipt.printed", {"for": str(message.id)})
        case "sleep":
            time.sleep(order["seconds"])
        case "hang":
            hang(order["seconds"])
        case "wait":
            wait_for_file(Path(order["file"]))


def die_after_commit(message: Message) -> None:
    note("committed", message)
    os.kill(os.getpid(), signal.SIGKILL)


def hang(seconds: float) -> None:
    """Take no notice of a soft time limit."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        try:
            time.sleep(left)
        except Exception:
            continue


def wait_for_file(path: Path) -> None:
    ends = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < ends:
        time.sleep(0.01)


def note(what: str, message: Message) -> None:
    """One line in the diary of the test: appended in one write, so that processes do not mix."""
    path = os.environ.get("CHILD_DIARY")
    if path:
        entry = {
            "what": what,
            "id": str(message.id),
            "attempt": message.attempt,
            "pid": os.getpid(),
            "topic": message.topic,
        }
        descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            os.write(descriptor, (json.dumps(entry) + "\n").encode())
        finally:
            os.close(descriptor)
