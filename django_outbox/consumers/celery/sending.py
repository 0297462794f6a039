"""Send a consumer task's own message on: to be tried again later, or into the dead-letter queue.

On RabbitMQ the copy is confirmed and mandatory, and only then is the delivery acknowledged: a message
is in two places for a moment and never in none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from kombu import Connection, Exchange, Queue
from kombu.pools import connections

from django_outbox.brokers.rabbitmq.asides import DEAD_AT, QUEUE, REASON
from django_outbox.brokers.rabbitmq.topology import WorkQueue
from django_outbox.brokers.rabbitmq.topology_options import topology
from django_outbox.exceptions import RejectMessage
from django_outbox.wire.amqp import is_brokers
from django_outbox.wire.celery import ARGS_REPR, KWARGS_REPR


class SetAside(RejectMessage):
    """A copy of the message is in the dead-letter queue, so its delivery is to be acknowledged."""


def is_delivery(request: Any) -> bool:
    """Whether the task runs for a message of a broker: not eagerly, not called as a function."""
    return not (request.called_directly or request.is_eager)


def own_headers(request: Any) -> dict[str, Any]:
    """The message's headers without what brokers write: RabbitMQ drops a message whose x-death looks
    like a cycle."""
    return {name: value for name, value in (request.headers or {}).items() if not is_brokers(name)}


@contextlib.contextmanager
def sending(task: Any, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of a call that sends this message again, with all that its broker can do.

    What Celery would show in place of the arguments stays a constant: it would be the payload.
    """
    options = {"argsrepr": ARGS_REPR, "kwargsrepr": KWARGS_REPR, **options}
    if not is_delivery(task.request):
        yield options
        return
    confirming: Connection = task.app.connection_for_write(
        transport_options={"confirm_publish": True}
    )
    if confirming.transport.driver_type != "amqp":
        yield options
        return
    with connections[confirming].acquire(block=True) as connection:
        yield {
            "connection": connection,
            "mandatory": True,
            **options,
            **_wait_options(task.request, options.get("countdown")),
        }


def send_again(task: Any, countdown: float) -> Any:
    """Send the message again with no attempt counted; the signature that was sent. Raises whatever
    the transport raises."""
    given = {"countdown": countdown, "headers": own_headers(task.request)}
    with sending(task, given) as options:
        signature = task.signature_from_request(retries=task.request.retries, **options)
        signature.apply_async()
    return signature


def set_aside(task: Any, reason: str) -> bool:
    """Put a copy with the reason into the dead-letter queue. Raises whatever the transport raises.

    False: ``OUTBOX["TOPOLOGY"]`` does not have the queue it came from, so nobody knows where to.
    """
    work_queue = _work_queue(task.request)
    if work_queue is None:
        return False
    dead_letters = Queue(
        work_queue.dead_letter_queue,
        Exchange(topology().dead_letter_exchange),
        routing_key=work_queue.name,
        no_declare=True,
    )
    notes = {
        REASON: reason,
        QUEUE: task.request.delivery_info["routing_key"],
        DEAD_AT: datetime.now(UTC).isoformat(timespec="seconds"),
    }
    request = task.request
    with sending(task, {"headers": {**own_headers(request), **notes}}) as options:
        if "mandatory" not in options:
            return False
        # By its name: Celery would hold the arguments against the task's, and they may be what is wrong.
        task.app.send_task(
            task.name,
            request.args,
            request.kwargs,
            **{
                **request.as_execution_options(),
                **options,
                "expires": None,  # it stays until a person decides
                "queue": dead_letters,
                "exchange": dead_letters.exchange.name,
                "routing_key": dead_letters.routing_key,
            },
        )
    return True


def _wait_options(request: Any, countdown: float | None) -> dict[str, Any]:
    work_queue = _work_queue(request)
    if not countdown or work_queue is None or not work_queue.wait_queues:
        return {}
    name, milliseconds = work_queue.wait_queue(timedelta(seconds=countdown))
    return {
        "queue": Queue(name, Exchange(""), routing_key=name, no_declare=True),
        "exchange": "",
        "routing_key": name,
        "expiration": milliseconds / 1000,
        "countdown": 0,
    }


def _work_queue(request: Any) -> WorkQueue | None:
    """The queue of ``OUTBOX["TOPOLOGY"]`` that the message was sent to by its name."""
    delivery = request.delivery_info or {}
    if delivery.get("exchange") or not delivery.get("routing_key"):
        return None
    return topology().queue_of(delivery["routing_key"])
