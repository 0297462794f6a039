"""Where one consumer alone is reached: its queue on RabbitMQ, or its task in Celery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from django_outbox.brokers.rabbitmq.options import read_connection_options
from django_outbox.brokers.rabbitmq.topology import WorkQueue
from django_outbox.brokers.rabbitmq.topology_options import connection_settings, topology
from django_outbox.conf import outbox_settings
from django_outbox.consumers.registry import consumer_named, is_registered
from django_outbox.exceptions import ImproperlyConfiguredOutbox, NoQueueOfConsumer
from django_outbox.publishers.base import Publisher
from django_outbox.publishers.one_queue import OneQueuePublisher
from django_outbox.publishers.registry import publisher_for
from django_outbox.topics import matches


@dataclass(frozen=True, slots=True)
class Destination:
    """What sends to one consumer."""

    publisher: Publisher
    takes: Callable[[str], bool]
    """Whether the consumer takes messages of a topic."""


@contextmanager
def destination_of(name: str, queue: str = "") -> Iterator[Destination]:
    """The consumer's, or that of the queue where one is given; connections end with the block.

    Raises ``NoQueueOfConsumer`` where it is not clear, ``ImproperlyConfiguredOutbox`` where no broker is.
    """
    task = None if queue else _task_of(name)
    if task is not None:
        yield task
        return
    work_queue, patterns = _queue_of(name, queue)
    publisher = _publisher(work_queue)
    try:
        yield Destination(publisher, lambda topic: any(matches(each, topic) for each in patterns))
    finally:
        publisher.close()


def _task_of(name: str) -> Destination | None:
    """The publisher that calls a task of this name."""
    for alias, config in outbox_settings().publishers.items():
        tasks = config.options.get("TASKS")
        if isinstance(tasks, Mapping) and name in tasks.values():
            return Destination(publisher_for(alias), partial(_calls, tasks, name))
    return None


def _calls(tasks: Mapping[str, str], name: str, topic: str) -> bool:
    # The publisher calls the first one that matches, whatever follows.
    return name == next((task for pattern, task in tasks.items() if matches(pattern, topic)), None)


def _queue_of(name: str, queue: str) -> tuple[WorkQueue, tuple[str, ...]]:
    """The queue, and the patterns of the topics that go there."""
    known = topology()
    patterns = consumer_named(name).patterns if is_registered(name) else ()
    if queue:
        found = known.queue_of(queue) or WorkQueue(queue)
        return found, patterns or found.patterns or ("#",)
    named = known.queue_of(name)
    if named is not None:
        return named, patterns or named.patterns or ("#",)
    if not patterns:
        queues = ", ".join(each.name for each in known.queues) or "none"
        raise NoQueueOfConsumer(
            f"No consumer {name!r} is declared in this project, and OUTBOX['TOPOLOGY'] has no queue of"
            f" that name. Name its queue by --queue. Known queues: {queues}."
        )
    return _only(
        name, patterns, [each for each in known.queues if _covers(each, patterns)]
    ), patterns


def _only(name: str, patterns: tuple[str, ...], found: list[WorkQueue]) -> WorkQueue:
    if len(found) == 1:
        return found[0]
    topics = ", ".join(patterns)
    which = ", ".join(each.name for each in found)
    raise NoQueueOfConsumer(
        f"The topics of {name!r} ({topics}) reach several queues: {which}. Name one by --queue."
        if found
        else f"No queue of OUTBOX['TOPOLOGY'] is bound for all topics of {name!r} ({topics}). Name its"
        " queue by --queue."
    )


def _covers(queue: WorkQueue, patterns: tuple[str, ...]) -> bool:
    # A pattern is read as if it were a topic: 'invoice.*' is covered by itself and by '#'.
    return all(any(matches(bound, pattern) for bound in queue.patterns) for pattern in patterns)


def _publisher(queue: WorkQueue) -> OneQueuePublisher:
    connection, problems = read_connection_options(*connection_settings())
    if connection is None:
        raise ImproperlyConfiguredOutbox("\n".join(f"{what} {hint}" for what, hint in problems))
    return OneQueuePublisher(queue, connection, outbox_settings().confirm_timeout.total_seconds())
