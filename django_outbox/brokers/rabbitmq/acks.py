"""Which deliveries of one channel are done with, and how few acks say so. Pure: no socket, no clock."""

from __future__ import annotations

from collections import deque


class AckWindow:
    """The deliveries of one channel that were received and not yet acknowledged."""

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._open: set[int] = set()
        self._done: set[int] = set()

    def __len__(self) -> int:
        """How many deliveries are neither acknowledged nor given back."""
        return len(self._open)

    def received(self, tag: int) -> None:
        """Note a delivery. The broker numbers them upwards."""
        self._order.append(tag)
        self._open.add(tag)

    def done(self, tag: int) -> int:
        """Note that a delivery may be acknowledged. Returns how many of them wait for their ack."""
        if tag in self._open:
            self._done.add(tag)
        return len(self._done)

    def gone(self, tag: int) -> None:
        """Note that a delivery was given back to the broker and needs no ack."""
        self._open.discard(tag)
        self._done.discard(tag)

    def take(self) -> list[tuple[int, bool]]:
        """The acks to send now, as (tag, multiple).

        One ack with ``multiple`` for everything up to the first delivery that is still at work, and
        one each for what was done out of turn.
        """
        acks: list[tuple[int, bool]] = []
        covered: list[int] = []
        while self._order and (self._order[0] in self._done or self._order[0] not in self._open):
            tag = self._order.popleft()
            if tag in self._done:
                covered.append(tag)
        if covered:
            acks.append((covered[-1], len(covered) > 1))
        rest = self._done.difference(covered)
        acks += [(tag, False) for tag in sorted(rest)]
        self._open -= self._done
        self._done.clear()
        return acks
