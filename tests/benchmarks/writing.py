"""Many writers beside one relay, each a process: does it slow them down to wake the relay?"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from django.conf import settings
from django.db import transaction

from django_outbox import enqueue
from tests.support.children import Child, Say
from tests.testapp.models import Invoice

#: 300 bytes as JSON.
PAYLOAD = {
    "invoice_id": 4711,
    "customer": "x" * 180,
    "currency": "EUR",
    "total": "99.90",
    "lines": [{"sku": "a-1", "n": 1}, {"sku": "a-2", "n": 2}],
}


def writing_rate(wakeup: str, writers: int, seconds: float) -> float:
    """Transactions a second of all writers together, beside a relay that is woken in this way."""
    with ExitStack() as stack:
        signal = Path(stack.enter_context(TemporaryDirectory())) / "go"
        stack.enter_context(Child(relay, wakeup)).wait_to_hear("started")
        children = [
            stack.enter_context(Child(write, str(signal), str(seconds))) for _ in range(writers)
        ]
        for child in children:
            child.wait_to_hear("ready")
        signal.touch()
        return sum(int(child.hear()) for child in children) / seconds


def write(say: Say, signal: str, seconds: str) -> None:
    """A writer: says how many transactions it has committed, each an invoice and its event."""
    for _ in range(5):
        issue()
    say("ready")
    while not Path(signal).exists():
        time.sleep(0.01)
    count, ends = 0, time.monotonic() + float(seconds)
    while time.monotonic() < ends:
        issue()
        count += 1
    say(str(count))


def issue() -> None:
    """The business transaction."""
    with transaction.atomic():
        invoice = Invoice.objects.create(number="2026-1")
        enqueue("invoice.issued", PAYLOAD, aggregate=invoice, sequence=1)


def relay(say: Say, wakeup: str) -> None:
    """A relay, until it is killed."""
    from django_outbox.relay.loop import Relay
    from django_outbox.relay.shutdown import Stop

    settings.OUTBOX = {**settings.OUTBOX, "WAKEUP": wakeup}
    say("started")
    Relay().run(Stop())
