"""What exchanges and queues there should be, worked out in full from few choices.

    EXCHANGE (topic) --patterns--> queue --rejected--> DEAD_LETTER_EXCHANGE --> queue.dead
                                     ^ |
                    expired, default | | sent by the consumer, confirmed
                            exchange | v
                                queue.retry.10s

Nothing is declared here and no broker's library is loaded: declare.py does that, and the consumers
ask for names alone. The choices come from ``OUTBOX["TOPOLOGY"]`` (topology_options.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

#: The header that says which partition a message belongs to: the aggregate's id.
PARTITION_HEADER: Final = "ce-partitionkey"
CONSISTENT_HASH: Final = "x-consistent-hash"
DEFAULT_EXCHANGE: Final = "domain.events"
DEFAULT_DELAYS: Final = (1, 10, 60, 300)

#: A quorum queue keeps a message that it dead-letters until the next queue has confirmed it.
_KEEP_UNTIL_TAKEN: Final = {
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """What leads from an exchange to a queue, or on to another exchange."""

    source: str
    destination: str
    key: str
    to_exchange: bool = False


Item: TypeAlias = Exchange | Queue | Binding


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A queue that consumers read, with everything that belongs to it."""

    name: str
    patterns: tuple[str, ...] = ()
    kind: Literal["quorum", "classic"] = "quorum"
    delivery_limit: int = 20
    """How often a quorum queue delivers one message before it dead-letters it of its own accord: the
    last resort, above what a consumer's ``max_attempts`` allows."""
    retry_delays: tuple[int, ...] = DEFAULT_DELAYS
    """Seconds, ascending: one wait queue each."""
    partitions: int = 0
    """Above zero: that many queues instead of one, each with a single active consumer, so that the
    messages of one aggregate are handled one after the other."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the work queue, as RabbitMQ names them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The queues that are consumed."""
        if not self.partitions:
            return (self.name,)
        return tuple(f"{self.name}.{number}" for number in range(self.partitions))

    @property
    def is_ordered(self) -> bool:
        """Whether a message that fails holds back the ones behind it instead of waiting aside."""
        return self.partitions > 0

    @property
    def dead_letter_queue(self) -> str:
        """Where rejected messages are kept; also their routing key's queue."""
        return f"{self.name}.dead"

    @property
    def entrance(self) -> tuple[str, str]:
        """The exchange and the routing key by which a message gets into this queue and no other."""
        if self.partitions:
            return f"{self.name}.partitions", self.name
        return "", self.name

    @property
    def wait_queues(self) -> tuple[tuple[int, str], ...]:
        """The wait queues by their delay in seconds; none where order is kept."""
        if self.is_ordered:
            return ()
        return tuple((delay, f"{self.name}.retry.{delay}s") for delay in self.retry_delays)

    def wait_queue(self, delay: timedelta) -> tuple[str, int]:
        """The wait queue for a delay, and the milliseconds to wait there, at most the queue's own.

        A message waits behind those that came before it, so it may come back later than asked for,
        by no more than the queue's delay.
        """
        seconds = max(delay.total_seconds(), 0.001)
        for limit, name in self.wait_queues:
            if seconds <= limit:
                return name, round(seconds * 1000)
        longest, name = self.wait_queues[-1]
        return name, longest * 1000


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that should exist."""

    exchange: str = DEFAULT_EXCHANGE
    dead_letter_exchange: str = f"{DEFAULT_EXCHANGE}.dead"
    queues: tuple[WorkQueue, ...] = ()

    def queue_of(self, name: str) -> WorkQueue | None:
        """The work queue that a consumed queue, itself or a partition of it, belongs to."""
        return next((queue for queue in self.queues if name in (queue.name, *queue.names)), None)

    def items(self) -> Iterator[Item]:
        """What to declare, in an order in which each only needs what came before it."""
        yield Exchange(self.exchange, "topic")
        yield Exchange(self.dead_letter_exchange, "direct")
        for queue in self.queues:
            yield from self._items_of(queue)

    def _items_of(self, queue: WorkQueue) -> Iterator[Item]:
        yield Queue(queue.dead_letter_queue, {"x-queue-type": queue.kind})
        yield Binding(self.dead_letter_exchange, queue.dead_letter_queue, queue.name)
        for name in queue.names:
            yield Queue(name, self._arguments(queue))
        for delay, name in queue.wait_queues:
            yield Queue(name, _wait_arguments(queue, delay))
        if not queue.partitions:
            for pattern in queue.patterns:
                yield Binding(self.exchange, queue.name, pattern)
            return
        hashing, _ = queue.entrance
        yield Exchange(hashing, CONSISTENT_HASH, {"hash-header": PARTITION_HEADER})
        for name in queue.names:
            yield Binding(hashing, name, "1")  # the key is the weight: an equal share each
        for pattern in queue.patterns:
            yield Binding(self.exchange, hashing, pattern, to_exchange=True)

    def _arguments(self, queue: WorkQueue) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "x-queue-type": queue.kind,
            "x-dead-letter-exchange": self.dead_letter_exchange,
            "x-dead-letter-routing-key": queue.name,
        }
        if queue.kind == "quorum":
            arguments["x-delivery-limit"] = queue.delivery_limit
            arguments |= _KEEP_UNTIL_TAKEN
        if queue.partitions:
            arguments["x-single-active-consumer"] = True
        return {**arguments, **queue.arguments}


def _wait_arguments(queue: WorkQueue, delay: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "x-queue-type": queue.kind,
        "x-message-ttl": delay * 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue.name,
    }
    return arguments | _KEEP_UNTIL_TAKEN if queue.kind == "quorum" else arguments
