"""Which queues the consumer tasks of the loaded Celery app read, for the system checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from celery import current_app
from celery.exceptions import QueueNotFound

from django_outbox.consumers.celery import ConsumerMixin

#: What a task may say itself of where its messages come from.
_OF_A_TASK: Final = ("queue", "exchange", "routing_key")


def queues_of_tasks() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Of each consumer task that is registered: its name, its queue, and that queue's arguments.

    As the app describes its queues; what the broker has may differ.
    """
    app: Any = current_app
    for name, task in sorted(app.tasks.items()):
        if not isinstance(task, ConsumerMixin):
            continue
        given = {each: getattr(task, each, None) for each in _OF_A_TASK}
        options = {each: value for each, value in given.items() if value}
        try:
            queue = app.amqp.router.route(options, name).get("queue")
        except QueueNotFound:
            continue  # the worker says so when it starts
        if queue is not None:
            yield name, queue.name, queue.queue_arguments or {}
