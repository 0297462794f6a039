"""A batch on its way: each publisher's part is published by a thread, or at once by the caller's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from django_outbox.batches import Batch, Claimed
from django_outbox.publishers.base import Publisher
from django_outbox.relay.publish import BatchPublishing, Receipts


class Flight:
    """One batch being published. ``receipts`` are by publisher and grow as its parts come back."""

    def __init__(
        self,
        batch: Batch,
        to_publish: Sequence[Claimed],
        publishing: BatchPublishing,
        publisher_for: Callable[[str], Publisher],
        landed: threading.Event,
    ) -> None:
        self.batch = batch
        self.receipts: dict[str | None, Receipts] = {}
        self._publishing = publishing
        self._landed = landed
        self._under_way = 0
        self._lock = threading.Lock()
        parts = publishing.by_publisher(to_publish)
        inline: list[tuple[str | None, list[Claimed]]] = []
        for alias, claimed in parts.items():
            if alias is not None and publisher_for(alias).supports_concurrent_publish:
                self._start(alias, claimed)
            else:
                inline.append((alias, claimed))
        for alias, claimed in inline:
            self.receipts[alias] = publishing.publish(batch, alias, claimed)

    @property
    def is_over(self) -> bool:
        """Whether every row has its receipt."""
        return self._under_way == 0

    def _start(self, alias: str, claimed: Sequence[Claimed]) -> None:
        with self._lock:
            self._under_way += 1
        threading.Thread(
            target=self._publish, args=(alias, claimed), name=f"outbox publish {alias}", daemon=True
        ).start()

    def _publish(self, alias: str, claimed: Sequence[Claimed]) -> None:
        try:
            self.receipts[alias] = self._publishing.publish(self.batch, alias, claimed)
        finally:
            with self._lock:
                self._under_way -= 1
            self._landed.set()
