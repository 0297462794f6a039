"""The child of bench_relay: drains the table once and writes down how long it took."""

from __future__ import annotations

import json
import time
from pathlib import Path

from django.conf import settings

from django_outbox.batches import Batch
from django_outbox.publishers.registry import close_publishers
from django_outbox.relay.loop import Relay
from tests.support.children import Say


def drain(say: Say, outbox: str, most: str, result: str) -> None:
    """The child's side: publish that many messages and write down how long it took."""
    settings.OUTBOX = json.loads(outbox)
    relay = _Bounded(int(most))
    began = time.perf_counter()
    totals = relay.drain()
    took = time.perf_counter() - began
    close_publishers()
    assert totals.is_clean
    Path(result).write_text(json.dumps([totals.published, took]))


class _Bounded(Relay):
    """Stops to claim after so many messages, so that the rest of a large table stays."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most
        self._send = self._flights.send
        self._flights.send = self._count  # type: ignore[method-assign]

    def _count(self, batch: Batch) -> None:
        self._left -= len(batch)
        self._send(batch)

    def _take_off(self) -> bool:
        return self._left > 0 and super()._take_off()
